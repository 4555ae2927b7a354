//! Permissions of files with keys.

use insta::assert_snapshot;

use super::{mode, set_mode};
use crate::files::stage::Stage;

#[test]
fn new_files_are_private() {
    let stage = Stage::new();
    stage.write("~/.cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    for (command, file) in [
        ("init", "pegboard.yaml"),
        ("--config new.toml add a -e TOKEN=x7x7 -- a", "new.toml"),
        ("--config plain.json add a -- a", "plain.json"),
        ("import --into imported.yaml", "imported.yaml"),
        ("connect vscode --project", ".vscode/mcp.json"),
        ("add a https://example.com --user", "~/.config/pegboard/pegboard.yaml"),
    ] {
        let said = stage.run(command);
        assert_eq!(mode(&stage.path(file)), 0o600, "{command}: {said}");
    }
}

#[test]
fn a_file_that_gets_keys_becomes_private() {
    let cases: &[(&[&str], bool)] = &[
        (&["add", "x", "-e", "API_TOKEN=s3cret", "--", "a"], true),
        (&["add", "x", "-e", "API_TOKEN", "--", "a"], false),
        (&["add", "x", "-e", "LEVEL=debug", "--", "a"], false),
        (&["add", "x", "-e", "DB=postgres://ada:s3cret@db/x", "--", "a"], true),
        (&["add", "x", "--", "a", "--api-key", "s3cret"], true),
        (&["add", "x", "https://ada:s3cret@example.com/mcp"], true),
        (&["add", "x", "https://ghp_0123456789abcdef0123@example.com/mcp"], true),
        (&["add", "x", "https://example.com/mcp?token=s3cret"], true),
        (&["add", "x", "https://example.com/mcp", "-H", "Authorization: Bearer s3cret"], true),
        (&["add", "x", "https://example.com/mcp", "-H", "Authorization: Bearer ${TOKEN}"], false),
        (&["add", "json", "x", r#"{"command": "a", "env": {"TOKEN": "s3cret"}}"#], true),
        (&["import", "with-keys.json"], true),
        (&["import", "without.json"], false),
        (&["disable", "old"], false),
    ];
    for (arguments, is_tightened) in cases {
        let stage =
            Stage::with("pegboard.yaml", "mcpServers: {old: {command: old, env: {OLD_TOKEN: there}}}\n");
        stage.write(
            "with-keys.json",
            r#"{"mcpServers": {"n": {"command": "n", "env": {"A_TOKEN": "s3cret"}}}}"#,
        );
        stage.write("without.json", r#"{"mcpServers": {"n": {"command": "n"}}}"#);
        let path = stage.path("pegboard.yaml");
        set_mode(&path, 0o644);
        let said = stage.run_of(arguments);
        let expected = if *is_tightened { 0o600 } else { 0o644 };
        assert_eq!(mode(&path), expected, "{arguments:?}: {said}");
        assert_eq!(said.contains("only you can read it"), *is_tightened, "{arguments:?}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn a_stricter_mode_stays() {
    for bits in [0o600, 0o400 | 0o200, 0o640, 0o644, 0o664] {
        let stage = Stage::with("pegboard.yaml", "mcpServers: {old: {command: old}}\n");
        set_mode(&stage.path("pegboard.yaml"), bits);
        stage.run("disable old");
        stage.run("add x -- x");
        assert_eq!(mode(&stage.path("pegboard.yaml")), bits);
        stage.run("add y -e Y_TOKEN=s3cret -- y");
        assert_eq!(mode(&stage.path("pegboard.yaml")), bits & 0o700);
    }
}

#[test]
fn a_file_that_becomes_private_is_reported() {
    let stage = Stage::with("pegboard.yaml", "mcpServers: {}\n");
    set_mode(&stage.path("pegboard.yaml"), 0o644);
    assert_snapshot!(stage.run("add hub -e HUB_TOKEN=s3cret -- hub"), @"
    Added server hub: pegboard.yaml
    (stderr) pegboard.yaml was readable by other users; it now contains keys (mcpServers.hub.env.HUB_TOKEN), and only you can read it
    ");
}

#[test]
fn backups_are_private() {
    let stage = Stage::new().configured();
    stage.write(
        "~/.cursor/mcp.json",
        r#"{"mcpServers": {"a": {"command": "a", "env": {"TOKEN": "s3cret"}}}}"#,
    );
    set_mode(&stage.path("~/.cursor/mcp.json"), 0o640);
    stage.run("connect cursor --user");
    let folder = stage.path("~/state/pegboard/backups");
    let mut n_files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
        n_files += 1;
    }
    assert!(n_files >= 3, "{n_files} files");
    assert_eq!(mode(&stage.path("~/.cursor/mcp.json")), 0o640);
}
