//! `pegboard secret`, and the references to secrets.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use insta::assert_snapshot;

use crate::files::stage::Stage;

const CANARY: &str = "canary-7d1f9e";

/// Stores a secret through standard input.
fn set(stage: &Stage, name: &str, value: &str) -> String {
    let mut command = stage.command_of(&["secret", "set", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    text.replace(&stage.home().display().to_string(), "~").trim_end().to_owned()
}

/// Checks that no file in a folder contains a text, and that only this user can access those with secrets.
fn assert_absent(folder: &Path, text: &str) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_absent(&path, text);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!found, "{} contains the secret", path.display());
    }
}

#[test]
fn secrets_are_set_listed_and_removed() {
    let stage = Stage::new();
    assert_snapshot!(set(&stage, "github", &format!("{CANARY}\n")), @r"
    Stored github encrypted in ~/state/pegboard/secrets.json: there is no keyring
    Refer to it with ${keyring:github}
    ");
    assert_snapshot!(set(&stage, "github", "abc"), @"error[usage]: the value has 3 characters: secrets of fewer than 4 cannot be kept out of logs, because they occur in innocent text; use a longer one");
    assert_snapshot!(set(&stage, "a b", CANARY), @"error[usage]: invalid name of a secret: use up to 100 letters, digits, '_', '-', '.' and '/', beginning with a letter or a digit");
    assert_snapshot!(set(&stage, "empty", ""), @r"
    error[usage]: the value is empty
      help: pegboard secret rm empty removes a secret
    ");
    assert_snapshot!(stage.run("secret ls"), @"github  file");
    assert_absent(&stage.home(), CANARY);
    #[cfg(unix)]
    for file in ["secrets.json", "sealing.key"] {
        use std::os::unix::fs::MetadataExt;
        let path = stage.home().join("state/pegboard").join(file);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{file}");
    }
    assert_snapshot!(stage.run("secret rm github"), @"Removed github");
    assert_snapshot!(stage.run("secret rm github"), @r"
    (stderr) error[not_found]: there is no secret 'github'
      help: list the secrets with pegboard secret ls
    (exit 4)
    ");
    // A value on the command line would be in the process list.
    assert!(stage.run_of(&["secret", "set", "github", CANARY]).contains("unexpected argument"));
}

#[test]
fn a_missing_secret_is_reported_with_what_to_type() {
    let stage = Stage::with(
        "pegboard.yaml",
        "mcpServers: {a: {url: 'https://example.com/mcp', headers: {Authorization: 'Bearer ${keyring:github}'}}}",
    );
    assert!(stage.run("validate").contains("there is no secret 'github'"));
    assert!(stage.run("validate").contains("help: pegboard secret set github"));
    set(&stage, "github", CANARY);
    let valid = stage.run("validate");
    assert!(!valid.contains("error") && !valid.contains("warning") && !valid.contains(CANARY), "{valid}");
}

#[test]
fn plaintext_keys_are_stored_instead_of_written() {
    let stage = Stage::new();
    let header = format!("Authorization: Bearer {CANARY}");
    let added = stage.run_of(&["add", "github", "https://example.com/mcp", "-H", &header, "--store-keys"]);
    assert_snapshot!(added, @r"
    Added server github: pegboard.yaml, for this folder; --user is for every folder
    (stderr) Stored 1 secret: github/Authorization; see pegboard secret ls
    ");
    assert_snapshot!(stage.read("pegboard.yaml"), @r"
    mcpServers:
      github:
        url: https://example.com/mcp
        headers:
          Authorization: Bearer ${keyring:github/Authorization}
    ");
    // The same key is not stored twice; another one under the same name is.
    stage.run_of(&["add", "github", "https://example.com/mcp", "-H", &header, "--store-keys", "--force"]);
    assert_snapshot!(stage.run("secret ls"), @"github/Authorization  file");
    let other = format!("Authorization: Bearer {CANARY}-2");
    stage.run_of(&["add", "github", "https://example.com/mcp", "-H", &other, "--store-keys", "--force"]);
    assert_snapshot!(stage.run("secret ls"), @r"
    github/Authorization    file
    github/Authorization-2  file
    ");
    stage.write(
        "~/.cursor/mcp.json",
        &format!(r#"{{"mcpServers": {{"notes": {{"command": "n", "env": {{"API_KEY": "{CANARY}"}}}}}}}}"#),
    );
    let imported = stage.run("import cursor --store-keys");
    assert!(!imported.contains("plaintext"), "{imported}");
    let written = stage.read("~/.config/pegboard/pegboard.yaml");
    assert!(written.contains("API_KEY: ${keyring:notes/API_KEY}"), "{written}");
    // A key that was stored is known again, and another one is not.
    let again = stage.run("import cursor --store-keys");
    assert!(again.contains("already present"), "{again}");
    assert_eq!(stage.read("~/.config/pegboard/pegboard.yaml"), written);
    std::fs::write(
        stage.path("~/.cursor/mcp.json"),
        stage.read("~/.cursor/mcp.json").replace(CANARY, "another-key-1"),
    )
    .unwrap();
    let other = stage.run("import cursor --dry-run");
    assert!(other.contains("new as notes-cursor"), "{other}");
    std::fs::remove_file(stage.path("~/.cursor/mcp.json")).unwrap();
    assert_absent(&stage.home(), CANARY);
}

#[cfg(unix)]
#[test]
fn a_command_runs_for_the_users_own_file_only() {
    let ran = |stage: &Stage| stage.home().join("ran").exists();
    let text = |stage: &Stage| {
        let command = format!("/bin/sh -c \"echo {CANARY}; : > {}\"", stage.home().join("ran").display());
        format!(
            "mcpServers:\n  a:\n    url: http://127.0.0.1:9/mcp\n    headers:\n      Authorization: 'Bearer ${{cmd:{command}}}'\n"
        )
    };
    let foreign = |stage: &Stage| {
        let text = serde_json::Value::from(format!(
            "${{cmd:/bin/sh -c ': > {}'}}",
            stage.home().join("ran").display()
        ));
        format!(
            r#"{{"mcpServers": {{"a": {{"command": "x", "env": {{"KEY": {text}, "B": "${{A:-${{cmd:id}}}}"}}}}}}}}"#
        )
    };
    for (file, commands) in [
        (
            "pegboard.yaml",
            &["validate", "ls", "import pegboard.yaml --user --trust", "doctor --no-start"][..],
        ),
        (
            ".mcp.json",
            &["validate .mcp.json", "ls .mcp.json --trust", "import .mcp.json --user --trust", "validate"],
        ),
        (".cursor/mcp.json", &["import .cursor/mcp.json --user --trust", "validate"]),
        ("~/.cursor/mcp.json", &["import cursor", "validate"]),
    ] {
        let stage = Stage::new();
        let text = if file == "pegboard.yaml" { text(&stage) } else { foreign(&stage) };
        stage.write(file, &text);
        for command in commands {
            stage.run(command);
            assert!(!ran(&stage), "{file}: {command}");
        }
    }
    let stage = Stage::new();
    stage.write("~/.config/pegboard/pegboard.yaml", &text(&stage));
    let valid = stage.run("validate");
    assert!(!ran(&stage) && !valid.contains("error"), "{valid}");
    let listed = stage.run("ls");
    assert!(ran(&stage) && !listed.contains(CANARY), "{listed}");
    // Named from elsewhere, a file is not the user's own.
    let stage = Stage::new();
    stage.write("team.yaml", &format!("pegboard: 1\n{}", text(&stage)));
    let said = stage.run("--config team.yaml validate");
    assert!(!ran(&stage) && said.contains("only the user's own configuration may do"), "{said}");
}

#[cfg(unix)]
#[test]
fn nothing_that_an_import_copies_runs_a_command() {
    let stage = Stage::new();
    let command = format!("${{cmd:touch {}}}", stage.home().join("ran").display());
    stage.write("agents/helper.md", "---\nmodels: [p/m]\n---\nHelp.\n");
    stage.write(
        "pegboard.yaml",
        &format!(
            "providers: {{p: {{type: openai-compatible, baseUrl: 'http://127.0.0.1:9/v1', apiKey: '{command}'}}}}\n\
             agents: [agents/helper.md]\n\
             toolboxes:\n  box:\n    description: '{command}'\n    mcpServers:\n      \
             plain: {{command: /bin/true}}\n      \
             direct: {{command: /bin/true, env: {{K: '{command}'}}}}\n    \
             restTools: {{r: {{url: 'http://127.0.0.1:9/', headers: {{K: '{command}'}}}}}}\n    \
             openapiSpecs: {{o: {{spec: 'http://127.0.0.1:9/', credentials: {{k: {{value: '{command}'}}}}}}}}\n"
        ),
    );
    let said = stage.run("import pegboard.yaml --user --trust");
    let written = stage.read("~/.config/pegboard/pegboard.yaml");
    assert!(written.contains("plain"), "{said}\n{written}");
    assert!(!written.contains("cmd:"), "{said}\n{written}");
}

#[cfg(unix)]
#[test]
fn the_name_of_a_folder_is_no_reference() {
    let stage = Stage::new();
    for folder in ["${cmd:touch ran}", "x}${cmd:touch ran}", "${API_TOKEN}"] {
        let entry = r#"{"command": "./x", "env": {"F": "${workspaceFolder}"}}"#;
        stage.write(&format!("{folder}/.mcp.json"), &format!(r#"{{"mcpServers": {{"s": {entry}}}}}"#));
        let mut command = stage.command_of(&["import", "./.mcp.json", "--user", "--trust"]);
        let said = stage.told(command.current_dir(stage.path(folder)));
        let written = std::fs::read_to_string(stage.path("~/.config/pegboard/pegboard.yaml"));
        let written = written.unwrap_or_else(|error| panic!("{folder}: {error}: {said}"));
        assert!(written.contains(&format!("${}", folder.trim_start_matches("x}"))), "{said}\n{written}");
        let said = stage.run("validate");
        assert!(!stage.path("ran").exists() && !said.contains("is not set"), "{folder}: {said}");
        std::fs::remove_file(stage.path("~/.config/pegboard/pegboard.yaml")).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_secret_appears_in_no_output_log_trace_or_file() {
    use std::os::unix::fs::MetadataExt;

    fn assert_private(folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            assert_eq!(metadata.mode() & 0o077, 0, "{} is open to others", path.display());
            if metadata.is_dir() {
                assert_private(&path);
            }
        }
    }

    for canary in [CANARY, "q7zk"] {
        let stage = Stage::new();
        set(&stage, "key", canary);
        let program = env!("CARGO_BIN_EXE_pegboard");
        stage.write(
            "pegboard.yaml",
            &format!(
                "tracePayloads: true\ntraceMCP: true\nmcpServers:\n  \
                 clock: {{command: [{program}, demo-server, clock], env: {{API_KEY: '${{keyring:key}}'}}}}\n  \
                 leaky: {{command: [/bin/sh, -c, 'echo token $API_KEY >&2; exit 3'], env: {{API_KEY: '${{keyring:key}}'}}}}\n  \
                 gone: {{command: '/nowhere/${{keyring:key}}/program'}}\n  \
                 lost: {{command: '/nowhere/${{SOME_VALUE}}/program', cwd: '/nowhere/${{SOME_VALUE}}'}}\n  \
                 remote: {{url: 'http://127.0.0.1:9/${{keyring:key}}', headers: {{Authorization: 'Bearer ${{keyring:key}}'}}}}\n"
            ),
        );
        for line in [
            "ls --trust",
            "ls --trust --json",
            "doctor --trust",
            "call clock/now --trust",
            "call leaky/x --trust",
            "validate",
            "validate --origins",
            "export",
            "trust",
            "secret ls --json",
        ] {
            let mut command = stage.command(line);
            let said =
                stage.told(command.env("PEGBOARD_LOG", "trace").env("SOME_VALUE", "a-value-of-the-user"));
            assert!(!said.contains(canary) && !said.contains("a-value-of-the-user"), "{line}: {said}");
        }
        assert_absent(&stage.home(), canary);
        assert_private(&stage.home().join("state/pegboard"));
    }
}

#[cfg(unix)]
#[test]
fn looking_at_the_configuration_runs_no_command() {
    let stage = Stage::new();
    let ran = stage.home().join("ran");
    let command = format!("/bin/sh -c \": > {}; echo {CANARY}\"", ran.display());
    let text = format!(
        "mcpServers:\n  clock:\n    url: http://127.0.0.1:9/mcp\n    headers:\n      Authorization: 'Bearer ${{cmd:{command}}}'\n"
    );
    stage.write("~/.config/pegboard/pegboard.yaml", &text);
    for looking in [
        "complete --shell zsh -- enable c",
        "complete --shell zsh -- logs c",
        "complete --shell zsh -- ls c",
        "disable clock --user",
        "enable clock --user",
        "doctor --no-start",
        "validate",
        "connect cursor --no-check",
        "trust --list",
        "logs",
    ] {
        stage.run(looking);
        assert!(!ran.exists(), "{looking}");
    }
    assert_snapshot!(stage.run("complete --shell zsh -- enable c"), @"clock	default");
    stage.run("ls");
    assert!(ran.exists());
}

#[test]
fn keys_that_cannot_be_stored_stay_in_the_file() {
    let stage = Stage::new();
    let long = "k".repeat(3000);
    let servers = format!(
        r#"{{"mcpServers": {{"notes": {{"command": "n", "env": {{"API_KEY": "{CANARY}", "OTHER_API_KEY": "{CANARY}-2", "LONG_API_KEY": "{long}"}}}}}}}}"#
    );
    stage.write("~/.cursor/mcp.json", &servers);
    let imported = stage.run("import cursor --store-keys");
    assert!(
        imported.contains("warning: toolboxes.notes.mcpServers.notes.env.LONG_API_KEY stays in the file"),
        "{imported}"
    );
    let written = stage.read("~/.config/pegboard/pegboard.yaml");
    for text in ["API_KEY: ${keyring:notes/API_KEY}", "OTHER_API_KEY: ${keyring:notes/OTHER_API_KEY}", &long]
    {
        assert!(written.contains(text), "{written}");
    }
}

#[test]
fn an_import_that_fails_leaves_no_secrets_behind() {
    let stage = Stage::new();
    let servers =
        format!(r#"{{"mcpServers": {{"notes": {{"command": "n", "env": {{"API_KEY": "{CANARY}"}}}}}}}}"#);
    stage.write("~/.cursor/mcp.json", &servers);
    let failed = stage.run("import cursor --store-keys --take-over --http");
    assert!(failed.contains("error[not_running]"), "{failed}");
    assert!(!stage.path("~/.config/pegboard/pegboard.yaml").exists());
    assert_snapshot!(stage.run("secret ls"), @"(stderr) no secrets; store one with pegboard secret set NAME");
}

#[test]
fn a_secret_may_be_a_url() {
    let text = "mcpServers:\n  a:\n    url: '${keyring:hook}'\n";
    let stage = Stage::with("pegboard.yaml", text);
    set(&stage, "hook", "https://example.com/hooks/0123456789");
    for looking in [
        "validate",
        "validate pegboard.yaml",
        "export --to codex",
        "disable a",
        "import pegboard.yaml --user --trust",
    ] {
        let said = stage.run(looking);
        assert!(!said.contains("error") && !said.contains("invalid"), "{looking}: {said}");
    }
    assert!(stage.read("~/.config/pegboard/pegboard.yaml").contains("${keyring:hook}"));
}
