//! Exit codes: the same failure has the same code in every command, that of the table in `docs/operations.md`.

use std::fmt::Write;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const PEGBOARD: &str = env!("CARGO_BIN_EXE_pegboard");

/// Servers in every state, and an agent whose model is not running.
const CONFIGURATION: &str = r#"
mcpServers:
  clock: {command: PEGBOARD, args: [demo-server, clock]}
  gone: {command: no-such-program}
  refused: {url: "http://127.0.0.1:9/mcp"}
  breaks: {command: sh, args: [-c, "exit 3"]}
  slow: {command: sleep, args: ["60"], startTimeout: 200ms, firstStartTimeout: 200ms}
  unset: {command: PEGBOARD, args: [demo-server, clock], env: {T: "${NOT_SET_ANYWHERE}"}}
  off: {command: PEGBOARD, args: [demo-server, clock], enabled: false}
providers: {local: {type: openai-compatible, baseUrl: "http://127.0.0.1:9/v1"}}
"#;

const AGENT: &str = "---\ndescription: Answers\nmodels: [local/small]\n---\nYou answer.\n";

/// Exit codes of the documentation, the folder and the commands that have them.
const CASES: [(i32, &str, &[&str]); 11] = [
    (
        0,
        "work",
        &["call clock/now city=Oslo", "ls clock", "tools", "validate", "sessions", "trace ls", "output ls"],
    ),
    (1, "work", &["batch calls"]),
    (
        2,
        "work",
        &[
            "bogus",
            "call",
            "call clock/now nonsense",
            "call clock/now city:=",
            "logs --no-daemon",
            "status --no-daemon",
            "serve --http 0.0.0.0:1",
            "init",
            "run answers.ai",
            "connect cursor --http=codex",
            "--timeout 5 ls",
            "restart a b",
        ],
    ),
    (
        3,
        "work",
        &[
            "--config invalid.yaml ls",
            "--config invalid.yaml call clock/now",
            "--config invalid.yaml serve",
            "--config invalid.yaml doctor",
            "--config invalid.yaml run answers.ai hi",
            "--config invalid.yaml connect cursor",
            "--config invalid.yaml batch calls",
            "validate invalid.yaml",
            "--set toolTimeout=soon ls",
        ],
    ),
    (
        3,
        "empty",
        &[
            "ls",
            "tools",
            "call clock/now",
            "validate",
            "doctor",
            "run answers hi",
            "connect cursor",
            "export --to cursor",
            "batch nothing",
            "bench clock/now",
            "chain ls",
        ],
    ),
    (
        4,
        "work",
        &[
            "call nowhere",
            "call clock/nowhere",
            "call nobox/clock/now",
            "bench clock/nowhere",
            "schema tool clock/nowhere",
            "tools -b nobox",
            "ls nowhere",
            "doctor nowhere",
            "run nobody hi",
            "run nofile.ai hi",
            "chain run nowhere",
            "chain check nowhere",
            "batch nofile",
            "trace zz",
            "sessions show zz",
            "output cat zz",
            "connect emacs",
            "restore emacs",
            "export --to emacs",
            "rm nowhere",
            "enable nowhere",
            "import nofile",
            "trust nofile",
            "validate nofile.yaml",
            "--config nofile.yaml ls",
            "serve nofile.yaml",
            "openapi nofile.yaml",
        ],
    ),
    (
        5,
        "work",
        &[
            "call gone/x",
            "call refused/x",
            "call breaks/x",
            "call slow/x",
            "call unset/now",
            "call off/now",
            "call default/off/now",
            "bench gone/x",
            "bench refused/x",
            "bench off/now",
            "schema tool gone/x",
            "schema tool unset/now",
            "doctor gone",
            "doctor refused",
            "run answers.ai hi",
        ],
    ),
    (
        5,
        "work",
        &[
            "status",
            "stop",
            "restart",
            "restart clock",
            "reload",
            "logs",
            "logs clock",
            "connect cursor --http",
        ],
    ),
    (5, "empty", &["status", "stop", "logs", "connect cursor --http"]),
    (6, "work", &["--timeout 1ms call clock/now city=Oslo", "status --wait 1ms"]),
    (7, "work", &["call clock/now bogus=1", "call clock/now", "call clock/now {\"city\":5}"]),
];

struct Stage(TempDir);

impl Stage {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("there is room");
        for (name, text) in [
            ("work/pegboard.yaml", CONFIGURATION),
            ("work/answers.ai", AGENT),
            ("work/calls", "{\"tool\": \"clock/nowhere\"}\n"),
            ("work/invalid.yaml", "mcpServers: 5\n"),
            ("empty/nothing", ""),
        ] {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it is in the home")).expect("there is room");
            std::fs::write(path, text.replace("PEGBOARD", PEGBOARD)).expect("there is room");
        }
        Self(home)
    }

    /// Runs a command; returns its exit code and the codes of its errors.
    fn run(&self, folder: &str, arguments: &str) -> (i32, String) {
        let mut command = Command::new(PEGBOARD);
        let home = self.0.path();
        command.arg("--trust").args(arguments.split_whitespace()).current_dir(home.join(folder));
        command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        let output = command.output().expect("the binary was just built");
        let text = String::from_utf8(output.stderr).expect("it is text");
        let code = |line: &str| Some(line.strip_prefix("error[")?.split_once(']')?.0.to_owned());
        let codes: Vec<String> = text.lines().filter_map(code).collect();
        (output.status.code().unwrap_or(-1), codes.join(" "))
    }
}

#[test]
fn a_failure_has_the_same_exit_code_in_every_command() {
    let stage = Stage::new();
    let mut wrong = String::new();
    for (expected, folder, commands) in CASES {
        for command in commands {
            let (exit, codes) = stage.run(folder, command);
            if exit != expected {
                let _ = writeln!(wrong, "{folder}: {command}: {exit} instead of {expected} ({codes})");
            }
        }
    }
    assert_eq!(wrong, "");
}
