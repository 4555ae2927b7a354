//! Owners and permissions of files that are found.

use std::os::unix::fs::{chown, lchown, symlink};

use serde_json::json;

use super::{evil, has_run, mode, project, set_mode, write_servers};
use crate::files::stage::Stage;

/// Another user and another group.
const OTHER: u32 = 65_534;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can give a file to another user");
    }
    is_root
}

/// Checks that a file is rejected for a reason even though it is trusted.
fn check_rejected(stage: &Stage, reason: &str) {
    for command in ["ls", "--trust ls", "doctor", "serve --stdio", "validate", "trust"] {
        let said = stage.run(command);
        assert!(said.contains(reason), "{command}: {said}");
        assert!(!has_run(stage), "{command} ran it");
    }
}

#[test]
fn files_that_others_can_write_are_not_loaded() {
    for (bits, is_loaded) in
        [(0o600, true), (0o644, true), (0o444, true), (0o646, false), (0o602, false), (0o666, false)]
    {
        let stage = project("pegboard.json");
        stage.run("trust");
        set_mode(&stage.path("pegboard.json"), bits);
        if is_loaded {
            stage.run("ls");
            assert!(has_run(&stage), "{bits:o}");
        } else {
            check_rejected(&stage, &format!("other users can write the file (mode {bits:04o})"));
        }
    }
}

#[test]
fn the_private_group_of_the_user_may_write() {
    if !is_root() {
        return;
    }
    let stage = project("pegboard.json");
    stage.run("trust");
    let path = stage.path("pegboard.json");
    set_mode(&path, 0o664);
    stage.run("ls");
    assert!(has_run(&stage), "the group root has no other member");
    std::fs::remove_file(super::mark(&stage)).unwrap();
    chown(&path, None, Some(OTHER)).unwrap();
    check_rejected(&stage, "other users can write the file (mode 0664)");
}

#[test]
fn files_of_other_users_are_not_loaded() {
    if !is_root() {
        return;
    }
    let stage = project("pegboard.json");
    stage.run("trust");
    chown(stage.path("pegboard.json"), Some(OTHER), None).unwrap();
    check_rejected(&stage, "the file belongs to another user (uid 65534)");
    stage.run("--config pegboard.json ls");
    assert!(has_run(&stage), "the user named it");

    let stage = Stage::new();
    write_servers(&stage, "~/.config/pegboard/pegboard.json", &json!({"evil": evil(&stage)}));
    chown(stage.path("~/.config/pegboard/pegboard.json"), Some(OTHER), None).unwrap();
    assert!(stage.run("ls").contains("belongs to another user"));

    // The repository may belong to someone else, too.
    let stage = project("../pegboard.json");
    stage.write("../.git/HEAD", "");
    chown(stage.path("../pegboard.json"), Some(OTHER), None).unwrap();
    check_rejected(&stage, "belongs to another user");
}

#[test]
fn a_linked_file_is_trusted_where_the_link_is() {
    let stage = project("pegboard.json");
    stage.run("trust");
    let clone = stage.path("clone");
    std::fs::create_dir(&clone).unwrap();
    symlink(stage.path("pegboard.json"), clone.join("pegboard.json")).unwrap();
    let said = stage.told(stage.command("ls").current_dir(&clone));
    // Relative commands in it would start in the other directory.
    assert!(said.contains("not trusted"), "{said}");
    assert!(!has_run(&stage));
    stage.told(stage.command("trust").current_dir(&clone));
    stage.told(stage.command("ls").current_dir(&clone));
    assert!(has_run(&stage));
    if !is_root() {
        return;
    }
    lchown(clone.join("pegboard.json"), Some(OTHER), None).unwrap();
    let said = stage.told(stage.command("ls").current_dir(&clone));
    assert!(said.contains("symbolic link of another user"), "{said}");
}

#[test]
fn the_record_of_trusted_files_is_private() {
    let stage = project("pegboard.json");
    stage.run("trust");
    let record = stage.path("~/state/pegboard/trust.json");
    assert_eq!(mode(&record), 0o600);
    set_mode(&record, 0o666);
    check_record_rejected(&stage, "other users can write the file (mode 0666)");
}

#[test]
fn a_record_of_another_user_is_never_taken_over() {
    if !is_root() {
        return;
    }
    let stage = project("pegboard.json");
    stage.run("trust");
    chown(stage.path("~/state/pegboard/trust.json"), Some(OTHER), None).unwrap();
    check_record_rejected(&stage, "the file belongs to another user (uid 65534)");
}

/// Checks that no command uses the record or makes it its own.
fn check_record_rejected(stage: &Stage, reason: &str) {
    let path = "~/state/pegboard/trust.json";
    let before = stage.read(path);
    for command in ["ls", "trust", "add more https://example.com/mcp", "untrust", "untrust --all", "ls"] {
        let said = stage.run(command);
        assert!(said.contains(reason), "{command}: {said}");
        assert!(!has_run(stage), "{command} ran it");
        assert_eq!(stage.read(path), before, "{command} changed it");
    }
}
