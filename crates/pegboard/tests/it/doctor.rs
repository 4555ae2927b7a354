//! `pegboard doctor`, and the lookup of the configuration.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const PEGBOARD: &str = env!("CARGO_BIN_EXE_pegboard");

/// An empty home directory with a working directory.
fn home() -> TempDir {
    let home = tempfile::tempdir().expect("there is room");
    std::fs::create_dir(home.path().join("work")).expect("the folder was just made");
    home
}

fn write(home: &TempDir, name: &str, text: &str) {
    let path = home.path().join(name);
    std::fs::create_dir_all(path.parent().expect("it is in the home")).expect("there is room");
    std::fs::write(path, text.replace("PEGBOARD", PEGBOARD)).expect("there is room");
}

fn command(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(PEGBOARD);
    command
        .arg("--trust")
        .args(arguments)
        .current_dir(home.path().join("work"))
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin");
    command
}

/// Runs a command and returns its normalized output and exit code.
fn told(home: &TempDir, mut command: Command) -> String {
    let output = command.output().expect("the binary was just built");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("it is text")).concat();
    let plain =
        |text: String, path: &Path, name: &str| text.replace(path.to_str().expect("it is text"), name);
    let text = plain(text, home.path(), "~");
    let text = plain(text, Path::new(PEGBOARD), "PEGBOARD");
    let same_everywhere =
        |line: &&str| !line.contains("127.0.0.1:7332") && !line.contains("pegboard serve --http");
    let lines: Vec<&str> = text.lines().filter(same_everywhere).collect();
    format!("{}\nexit {}", lines.join("\n"), output.status.code().unwrap_or(-1))
}

#[test]
fn every_problem_is_reported_with_a_remedy() {
    let home = home();
    write(
        &home,
        "work/pegboard.yaml",
        r#"mcpServers:
  clock: {command: [PEGBOARD, demo-server, clock]}
  gone: {command: no-such-program}
  breaks: {command: sh, args: [-c, "echo boom >&2; exit 3"]}
  hub: {url: "https://example.com/mcp", headers: {Authorization: "Bearer ${HUB_TOKEN}"}}
  a-server-with-a-name-that-is-far-too-long-for-clients-to-take-it: {command: [PEGBOARD, demo-server, clock]}
"#,
    );
    insta::assert_snapshot!(told(&home, command(&home, &["doctor"])), @"
    Config     ✓ ~/work/pegboard.yaml is valid
               ! ~/work/pegboard.yaml:5:74 mcpServers.hub.headers.Authorization: the variable HUB_TOKEN is not set
                 help: export HUB_TOKEN=…, or add a default: ${HUB_TOKEN:-}
               ✓ 1 toolbox, 5 servers
    Commands   ✗ no-such-program is not on PATH; required by default/gone
                 help: install it, or set command to its full path
               ✓ PEGBOARD, sh found
    Servers    ✓ default/clock is ready: 2 tools
               ✗ default/breaks: did not start: the program exited with code 3. Stderr: boom
                 help: Run its command manually to see its output.
               ✓ default/a-server-with-a-name-that-is-far-too-long-for-clients-to-take-it is ready: 2 tools
    Names      ! default/a-server-with-a-name-that-is-far-too-long-for-clients-to-take-it/now is listed as a-server-with-a-name-that-is-far-too-long-for-clients-xeynrzy3_w
                 help: clients accept letters, digits, _ and - up to toolNameMaxLength; use a shorter server name
               ! default/a-server-with-a-name-that-is-far-too-long-for-clients-to-take-it/snooze is listed as a-server-with-a-name-that-is-far-too-long-for-clients-l5gjjldu_e
                 help: clients accept letters, digits, _ and - up to toolNameMaxLength; use a shorter server name
    Tools      ✓ 4 tools callable
    State      ✓ ~/.local/state/pegboard is writable
    2 problems, 3 warnings
    exit 5
    ");
}

#[test]
fn a_single_server_can_be_checked() {
    let home = home();
    write(
        &home,
        "work/pegboard.yaml",
        "mcpServers: {clock: {command: [PEGBOARD, demo-server, clock]}, gone: {command: no-such-program}}",
    );
    insta::assert_snapshot!(told(&home, command(&home, &["doctor", "clock"])), @"
    Config     ✓ ~/work/pegboard.yaml is valid
               ✓ 1 toolbox, 2 servers
    Commands   ✓ PEGBOARD found
    Servers    ✓ default/clock is ready: 2 tools
    Tools      ✓ 2 tools callable
    0 problems, 0 warnings
    exit 0
    ");
    insta::assert_snapshot!(told(&home, command(&home, &["doctor", "clok"])), @r#"
    error[unknown_server]: no server 'clok'
      help: did you mean clock?
    exit 4
    "#);
    insta::assert_snapshot!(told(&home, command(&home, &["doctor", "gone", "--no-start", "--json"])), @r#"
    {
      "ok": false,
      "problems": 1,
      "warnings": 0,
      "findings": [
        {
          "area": "config",
          "verdict": "ok",
          "message": "~/work/pegboard.yaml is valid"
        },
        {
          "area": "config",
          "verdict": "ok",
          "message": "1 toolbox, 2 servers"
        },
        {
          "area": "commands",
          "verdict": "problem",
          "message": "no-such-program is not on PATH; required by default/gone",
          "remedy": "install it, or set command to its full path"
        }
      ]
    }
    exit 5
    "#);
}

#[test]
fn without_a_configuration_doctor_suggests_init() {
    let home = home();
    insta::assert_snapshot!(told(&home, command(&home, &["doctor"])), @r#"
    Config     ✗ no configuration found in ~/work. Create a pegboard.yaml: {"mcpServers": {"files": {"command": "my-server"}}}
                 help: create one with pegboard init, or import the servers of your clients with pegboard import
    State      ✓ ~/.local/state/pegboard is writable
    1 problem, 0 warnings
    exit 3
    "#);
}

#[test]
fn the_more_specific_setting_wins() {
    let home = home();
    write(&home, ".config/pegboard/pegboard.yaml", "toolTimeout: no-time-of-the-user");
    write(&home, "work/pegboard.yaml", "mcpServers: {}");
    let look = |more: &[&str], variable: Option<&str>| {
        let mut command = command(&home, &[&["doctor", "--no-start"], more].concat());
        if let Some(value) = variable {
            command.env("PEGBOARD__TOOL_TIMEOUT", value);
        }
        let told = told(&home, command);
        let problem = told.lines().find(|line| line.contains('✗')).unwrap_or("all is well");
        problem.trim_start_matches("Config").trim().to_owned()
    };
    let file = home.path().join("named.yaml");
    let file = file.to_str().expect("it is text");
    let mut seen = vec![look(&[], None)];
    write(&home, "work/pegboard.yaml", "toolTimeout: no-time-of-the-project");
    seen.push(look(&[], None));
    write(&home, "named.yaml", "toolTimeout: no-time-of-the-file\nmcpServers: {}");
    seen.push(look(&["--config", file], None));
    seen.push(look(&["--config", file], Some("no-time-of-the-environment")));
    seen.push(look(
        &["--config", file, "--set", "toolTimeout=no-time-at-all"],
        Some("no-time-of-the-environment"),
    ));
    seen.push(look(&["--config", file, "--set", "toolTimeout=5s"], Some("no-time-of-the-environment")));
    insta::assert_snapshot!(seen.join("\n"), @r#"
    ✗ ~/.config/pegboard/pegboard.yaml:1:14 toolTimeout: duration must be a millisecond number, or a duration like 5m/2h/1d, not 'no-time-of-the-user'
    ✗ ~/work/pegboard.yaml:1:14 toolTimeout: duration must be a millisecond number, or a duration like 5m/2h/1d, not 'no-time-of-the-project'
    ✗ ~/named.yaml:1:14 toolTimeout: duration must be a millisecond number, or a duration like 5m/2h/1d, not 'no-time-of-the-file'
    ✗ PEGBOARD__TOOL_TIMEOUT: duration must be a millisecond number, or a duration like 5m/2h/1d, not 'no-time-of-the-environment'
    ✗ --set toolTimeout: duration must be a millisecond number, or a duration like 5m/2h/1d, not 'no-time-at-all'
    all is well
    "#);
}
