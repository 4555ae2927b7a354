//! `pegboard run`.

use std::fmt::Write;
use std::process::Stdio;

use insta::assert_snapshot;
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction, ScriptTurn, TurnCondition};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A directory with a configuration and an agent, and a scripted model.
struct Stage {
    folder: TempDir,
    model: ModelServer,
}

/// Result of a run.
struct Ran {
    code: Option<i32>,
    answer: String,
    said: String,
}

impl Stage {
    async fn new(script: Script) -> Self {
        let stage =
            Self { folder: tempfile::tempdir().unwrap(), model: ModelServer::start(script).await.unwrap() };
        let url = stage.model.chat_url();
        let configuration = json!({
            "pegboard": 1,
            "agents": ["agents/*.md"],
            "providers": {
                "local": {"type": "openai-compatible", "baseUrl": url, "models": {
                    "dear": {"pricing": {"input": 1_000, "output": 2_000}},
                }},
                "cloud": {"type": "anthropic", "apiKey": "${KEY_THAT_NOBODY_HAS}"},
            },
        });
        stage.write("pegboard.json", &configuration.to_string());
        stage.write(
            "agents/terse.md",
            "---\ndescription: Says it briefly\nmodels: [local/small]\n---\nBe brief.\n",
        );
        stage
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pegboard"));
        command
            .args(["--trust", "run"])
            .args(arguments)
            .current_dir(self.folder.path())
            .env("PEGBOARD_STATE", self.folder.path().join("state"))
            .env_remove("PEGBOARD_LOG")
            .env_remove("WORKBENCH_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().await.unwrap();
        self.ran(&output)
    }

    fn ran(&self, output: &std::process::Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let here = self.folder.path().canonicalize().unwrap();
        let plain = |text: String| {
            let text = text.replace(&format!("{}/", here.display()), "");
            text.replace(&format!("{}/", self.folder.path().display()), "")
        };
        Ran { code: output.status.code(), answer: text(&output.stdout), said: plain(text(&output.stderr)) }
    }
}

/// An agent's final report.
fn report(format: &str, status: &str, content: &str) -> ScriptAction {
    ScriptAction::calls([(
        "agent__final_report",
        json!({"status": status, "format": format, "content": content}),
    )])
}

/// Replaces durations in a text.
fn timeless(text: &str) -> String {
    let is_time = |word: &str| {
        let word = word.trim_end_matches(',');
        word.ends_with('s') && word.starts_with(|first: char| first.is_ascii_digit())
    };
    let line = |line: &str| {
        let words = line.split(' ').map(|word| match (is_time(word), word.ends_with(',')) {
            (true, true) => "TIME,",
            (true, false) => "TIME",
            (false, _) => word,
        });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Script with a single model turn.
fn of(model: &str, act: ScriptAction) -> ScriptTurn {
    ScriptTurn {
        when: TurnCondition { model: Some(model.to_owned()), ..TurnCondition::default() },
        times: 1,
        act,
    }
}

#[tokio::test]
async fn only_the_answer_goes_to_stdout() {
    let stage = Stage::new(Script {
        turns: vec![
            of(
                "small",
                ScriptAction::calls([(
                    "agent__helper",
                    json!({"prompt": "6*7?", "reason": "sum", "format": "sub-agent"}),
                )]),
            ),
            of("dear", report("sub-agent", "success", "42")),
            of("small", report("pipe", "success", "It is 42.")),
        ],
    })
    .await;
    stage.write("asker.md", "---\nmodels: [local/small]\nagents: [helper.ai]\n---\nAsk the helper.\n");
    stage.write("helper.ai", "#!/usr/bin/env pegboard\n---\nmodels: [local/dear]\n---\nCount.\n");
    let ran = stage.run(&["asker.md", "What is 6*7?"]).await;
    assert_eq!((ran.code, ran.answer.as_str()), (Some(0), "It is 42.\n"), "{}", ran.said);
    assert_snapshot!(timeless(&ran.said), @"
    1-1 agent__asker …
    1-1 agent__asker turn 1 of 10
    1-1 agent__asker local/small replied in TIME, 10 tokens in, 5 out
    1-1.1-2 agent__helper …
    1-1.1-2 agent__helper turn 1 of 10
    1-1.1-2 agent__helper local/dear replied in TIME, 10 tokens in, 5 out, $0.0200
    1-1.1-2 agent__helper done in TIME, 143 bytes
    1-1 agent__asker turn 2 of 10
    1-1 agent__asker local/small replied in TIME, 10 tokens in, 5 out
    1-1 agent__asker done in TIME, 145 bytes
    Done  asker: 2 turns, 2 tools, 30 tokens in, 15 out, $0.0200
    ");
    assert_eq!((stage.model.violations(), stage.model.n_unused_turns()), (Vec::new(), 0));
}

#[tokio::test]
async fn json_output_includes_run_metadata() {
    let stage = Stage::new(Script::of([report("markdown", "partial", "*Perhaps.*")])).await;
    let ran = stage.run(&["terse", "Is it?", "--json", "--quiet", "--model", "local/dear"]).await;
    assert_eq!((ran.code, ran.said.as_str()), (Some(0), ""));
    let mut document: Value = serde_json::from_str(&ran.answer).unwrap();
    let tree = document["opTree"].take();
    let session = &tree["turns"][0]["ops"][0];
    assert_eq!((&session["kind"], &session["status"]), (&json!("session"), &json!("ok")), "{tree:#}");
    let model = &session["childSession"]["turns"][0]["ops"][0];
    assert_eq!((&model["kind"], &model["name"]), (&json!("llm"), &json!("dear")), "{tree:#}");
    assert_snapshot!(format!("{document:#}"), @r#"
    {
      "agent": "terse",
      "status": "partial",
      "format": "markdown",
      "answer": "*Perhaps.*",
      "metadata": {
        "status": "partial"
      },
      "turns": 1,
      "tools": 1,
      "tokens": {
        "input": 10,
        "output": 5,
        "cacheRead": 0,
        "cacheWrite": 0
      },
      "costUsd": 0.02,
      "opTree": null
    }
    "#);
    assert_eq!(stage.model.requests()[0].body["model"], "dear");
}

#[tokio::test]
async fn an_agent_with_an_output_schema_returns_data() {
    let act = ScriptAction::calls([(
        "agent__final_report",
        json!({"status": "success", "format": "json", "content_json": {"sum": 42}}),
    )]);
    let stage = Stage::new(Script::of([act.clone(), act])).await;
    let text = "---
models: local/small
input: {format: json, schema: {type: object, properties: {a: {type: integer}}, required: [a]}}
output: {format: json, schema: {type: object, required: [sum]}}
---
Add.
";
    stage.write("adder.md", text);
    let ran = stage.run(&["adder.md", r#"{"a": 41}"#, "-q"]).await;
    assert_eq!((ran.code, ran.answer.as_str()), (Some(0), "{\"sum\":42}\n"), "{}", ran.said);
    let ran = stage.run(&["adder.md", r#"{"a": 41}"#, "-q", "--json"]).await;
    let document: Value = serde_json::from_str(&ran.answer).unwrap();
    assert_eq!((&document["answer"], &document["format"]), (&json!({"sum": 42}), &json!("json")));
    for (question, expected) in [
        ("41", "error[invalid_parameters]: agent 'adder' expects a JSON object"),
        (r#"{"a": "x"}"#, "error[invalid_parameters]: "),
    ] {
        let ran = stage.run(&["adder.md", question, "-q"]).await;
        assert_eq!((ran.code, ran.answer.as_str()), (Some(7), ""), "{}", ran.said);
        assert!(ran.said.starts_with(expected), "{}", ran.said);
    }
}

#[tokio::test]
async fn a_failure_report_is_printed_and_fails_the_command() {
    let stage = Stage::new(Script::of([report("pipe", "failure", "I do not know.")])).await;
    let ran = stage.run(&["agent__terse", "Who is it?", "-q"]).await;
    assert_eq!((ran.code, ran.answer.as_str()), (Some(1), "I do not know.\n"));
    assert_eq!(ran.said, "error[execution_error]: agent 'terse' reported a failure\n");
}

#[tokio::test]
async fn a_prompt_can_be_piped_in() {
    let stage = Stage::new(Script::of([report("pipe", "success", "Yes.")])).await;
    let mut child = stage.command(&["default/terse", "-", "-q"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Is it piped?").await.unwrap();
    let ran = stage.ran(&child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, ran.answer.as_str()), (Some(0), "Yes.\n"), "{}", ran.said);
    assert!(stage.model.requests()[0].body.to_string().contains("Is it piped?"));
}

#[tokio::test]
async fn a_piped_prompt_that_is_too_long_is_an_error() {
    let stage = Stage::new(Script::of([report("pipe", "success", "Yes.")])).await;
    let mut child = stage.command(&["default/terse", "-", "-q"]).stdin(Stdio::piped()).spawn().unwrap();
    let prompt = "word ".repeat(1024 * 1024);
    // The program stops reading at its limit.
    let _ = child.stdin.take().unwrap().write_all(prompt.as_bytes()).await;
    let ran = stage.ran(&child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, ran.said.trim()), (Some(2), "error[usage]: standard input is larger than 4 MiB"));
    assert_eq!(stage.model.requests(), []);
}

/// Runs commands that make no model request; returns output and exit codes.
async fn told(stage: &Stage, commands: &[&[&str]]) -> String {
    let mut told = String::new();
    for arguments in commands {
        let ran = stage.run(arguments).await;
        assert_eq!(ran.answer, "", "{arguments:?}");
        writeln!(told, "{arguments:?}: {}\n{}", ran.code.unwrap(), ran.said).unwrap();
    }
    assert_eq!(stage.model.requests(), []);
    told
}

#[tokio::test]
async fn invalid_requests_have_an_error_code() {
    let stage = Stage::new(Script::default()).await;
    stage.write("agents/research.md", "---\nmodels: [cloud/large]\n---\nFind out.\n");
    let commands: [&[&str]; 5] = [
        &["reserch", "Hello"],
        &["elsewhere/terse", "Hello"],
        &["gone.md", "Hello"],
        &["terse", " "],
        &["terse", "Hello", "--config", "gone.yaml"],
    ];
    assert_snapshot!(told(&stage, &commands).await, @r#"
    ["reserch", "Hello"]: 4
    error[unknown_agent]: no agent 'reserch'
      help: did you mean research?

    ["elsewhere/terse", "Hello"]: 4
    error[unknown_agent]: no such agent file: elsewhere/terse
      help: check the path

    ["gone.md", "Hello"]: 4
    error[unknown_agent]: no such agent file: gone.md
      help: check the path

    ["terse", " "]: 2
    error[usage]: missing prompt
      help: pass it after the agent, or pipe it in

    ["terse", "Hello", "--config", "gone.yaml"]: 4
    error[not_found]: gone.yaml: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}
    "#);
    let ran = stage.run(&["terse", "Hello", "--model", "small"]).await;
    assert!(ran.code == Some(2) && ran.said.contains("expected PROVIDER/model"), "{}", ran.said);
}

#[tokio::test]
async fn invalid_agents_have_an_error_code() {
    let stage = Stage::new(Script::default()).await;
    stage.write("agents/research.md", "---\nmodels: [cloud/large, nowhere/m]\n---\nFind out.\n");
    stage.write("bad.md", "---\nmodels: [local/small]\nmaxTurn: 3\n---\nDo it.\n");
    stage.write("agents/broken.md", "---\nmodels: [local/small]\nmaxTurns: no\n---\nDo it.\n");
    stage.write("agents/needs-broken.md", "---\nmodels: [local/small]\nagents: broken.md\n---\nDo it.\n");
    stage.write("needy.md", "---\nmodels: [local/small]\nagents: [agents/research.md]\n---\nDo it.\n");
    let commands: [&[&str]; 5] = [
        &["bad.md", "Hello"],
        &["needs-broken", "Hello"],
        &["research", "Hello"],
        &["needy.md", "Hello"],
        &["terse", "Hello", "--model", "locl/small"],
    ];
    assert_snapshot!(told(&stage, &commands).await, @r#"
    ["bad.md", "Hello"]: 3
    error[config_invalid]: bad.md:3:1  maxTurn
       3 | maxTurn: 3
         | ^^^^^^^ unknown setting
      help: did you mean maxTurns?
    1 error: this file was not loaded

    ["needs-broken", "Hello"]: 3
    error[config_invalid]: agents/needs-broken.md:3:9  agents
       3 | agents: broken.md
         |         ^^^^^^^^^ the agent 'broken' cannot be used
      help: fix the problems reported for its file
    error[config_invalid]: agents/broken.md:3:11  maxTurns
       3 | maxTurns: no
         |           ^^ expected a non-negative integer, not a string

    ["research", "Hello"]: 3
    error[config_invalid]: agent 'research' has no usable model
      model 'cloud/large': provider 'cloud' cannot be used: needs: KEY_THAT_NOBODY_HAS
      model 'nowhere/m': no provider 'nowhere'
      help: known providers: local, cloud; set another model in its file, or with --model

    ["needy.md", "Hello"]: 3
    error[config_invalid]: agent 'research' has no usable model
      model 'cloud/large': provider 'cloud' cannot be used: needs: KEY_THAT_NOBODY_HAS
      model 'nowhere/m': no provider 'nowhere'
      help: known providers: local, cloud; set another model in its file, or with --model

    ["terse", "Hello", "--model", "locl/small"]: 3
    error[config_invalid]: agent 'terse' has no usable model
      model 'locl/small': no provider 'locl'
      help: known providers: local, cloud; set another model in its file, or with --model
    "#);
}

#[tokio::test]
async fn a_cached_answer_is_reused() {
    let answers = ["One.", "Two.", "Three."].map(|text| report("pipe", "success", text));
    let stage = Stage::new(Script::of(answers)).await;
    let agent = |prompt: &str| format!("---\nmodels: [local/small]\ncache: 1h\n---\n{prompt}\n");
    stage.write("kept.md", &agent("Be brief."));
    assert_eq!(stage.run(&["kept.md", "Hello"]).await.answer, "One.\n");
    assert_eq!(stage.run(&["kept.md", "Hello"]).await.answer, "One.\n");
    assert_eq!(stage.run(&["kept.md", "Good day"]).await.answer, "Two.\n");
    // Another agent would give another answer.
    stage.write("kept.md", &agent("Be polite."));
    assert_eq!(stage.run(&["kept.md", "Hello"]).await.answer, "Three.\n");
    assert_eq!(stage.model.n_unused_turns(), 0);
}

#[cfg(unix)]
#[tokio::test]
async fn a_closed_pipe_is_not_an_error() {
    let stage = Stage::new(Script::of([report("pipe", "success", "Yes.")])).await;
    let mut child = stage.command(&["terse", "Hello", "-q"]).spawn().unwrap();
    drop(child.stdout.take());
    let ran = stage.ran(&child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, ran.said.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn an_error_of_the_model_is_reported() {
    let stage = Stage::new(Script::of([ScriptAction::refusal(401, "invalid_api_key", "wrong key")])).await;
    let ran = stage.run(&["terse", "Hello", "--quiet"]).await;
    assert_eq!((ran.code, ran.answer.as_str()), (Some(1), ""), "{}", ran.said);
    assert!(ran.said.starts_with("error[") && ran.said.contains("wrong key"), "{}", ran.said);
}

#[cfg(unix)]
#[tokio::test]
async fn interrupting_leaves_no_process() {
    use rustix::process::{Pid, Signal, kill_process};

    let stage = Stage::new(Script::of([ScriptAction::Hang])).await;
    let child = stage.command(&["terse", "Hello"]).spawn().unwrap();
    stage.model.wait_until_hanging(1).await;
    kill_process(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap(), Signal::INT).unwrap();
    let ran = stage.ran(&child.wait_with_output().await.unwrap());
    assert_eq!((ran.code, ran.answer.as_str()), (Some(130), ""), "{}", ran.said);
    stage.model.wait_until_hanging(0).await;
}
