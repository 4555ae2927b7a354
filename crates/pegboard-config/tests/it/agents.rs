//! Agent files.

use std::time::Duration;

use insta::assert_snapshot;
use pegboard_config::{AgentEntry, ConfigProblem, Configuration, load_agent, native_schema};
use pegboard_core::id::ToolName;
use pegboard_core::model::{Delivery, PromptCaching, ReasoningEffort};
use pegboard_core::settings::agent::{
    AgentInputSettings, AgentOutputSettings, AgentSettings, AgentToolOutputSettings, InputFormat,
    ReportFormat,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::environment;

/// Creates a directory with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// Removes the temporary directory from a text.
fn without(folder: &TempDir, text: &str) -> String {
    let canonical = folder.path().canonicalize().unwrap();
    let text = text.replace(&format!("{}/", folder.path().display()), "");
    text.replace(&format!("{}/", canonical.display()), "").replace(&canonical.display().to_string(), "HERE")
}

/// Returns the error of loading the agent in the first file, or all loaded agents.
fn load_summary(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    match load_agent(&folder.path().join(files[0].0), folder.path()) {
        Err(error) => without(&folder, &error.to_string()),
        Ok(file) => {
            let agents = file.agents.values().map(|agent| format!("{}: {}", agent.name, agent.prompt));
            let warnings = file.warnings.iter().map(ConfigProblem::render);
            without(&folder, &agents.chain(warnings).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Returns the text of an agent file with a model, further settings and a prompt.
fn agent(settings: &str, prompt: &str) -> String {
    format!("---\nmodels: [p/m]\n{settings}\n---\n{prompt}\n")
}

fn name(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

/// An agent file with every setting.
pub(crate) const FULL_AGENT: &str = r#"#!/usr/bin/env pegboard
---
description: Finds things out
usage: Ask it a question
toolName: Research Assistant!
models: [cloud/large, local/meta/small]
tools: [github, rest__weather, "openapi:catalog"]
agents: [writer.md]
router: {destinations: [clerk.ai]}
handoff: editor.md
maxTurns: 3
maxToolCallsPerTurn: 4
maxRetries: 0
maxOutputTokens: 1000
temperature: 0.5
topP: 0.9
topK: 40
reasoning: high
caching: none
cache: 5m
llmTimeout: 60000
toolTimeout: 30s
toolResponseMaxBytes: 1024
toolOutput: {enabled: true, maxChunks: 2, overlapPercent: 20, avgLineBytesThreshold: 500, models: [local/small]}
contextWindow: 32000
stream: false
input: {format: json, schema: {type: object, properties: {topic: {type: string}}}}
output: {format: json, schemaRef: answer.yaml}
---

It is ${DATETIME}. Find it out.
"#;

/// The expected settings, except for the path.
fn full_agent_settings() -> AgentSettings {
    AgentSettings {
        description: "Finds things out".to_owned(),
        usage: "Ask it a question".to_owned(),
        models: vec!["cloud/large".parse().unwrap(), "local/meta/small".parse().unwrap()],
        tools: ["github", "rest__weather", "openapi:catalog"].map(str::to_owned).to_vec(),
        agents: vec![name("writer")],
        destinations: vec![name("clerk")],
        handoff: Some(name("editor")),
        max_turns: 3,
        max_tool_calls_per_turn: 4,
        max_retries: 0,
        max_output_tokens: 1_000,
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        reasoning: Some(ReasoningEffort::High),
        caching: PromptCaching::Automatic,
        cache: Some("5m".parse().unwrap()),
        llm_timeout: Duration::from_mins(1),
        tool_timeout: Duration::from_secs(30),
        tool_response_max_bytes: 1_024,
        tool_output: AgentToolOutputSettings {
            is_enabled: Some(true),
            max_chunks: Some(2),
            overlap_percent: Some(20),
            avg_line_bytes_threshold: Some(500),
            models: vec!["local/small".parse().unwrap()],
        },
        context_window: Some(32_000),
        delivery: Delivery::Whole,
        input: AgentInputSettings {
            format: InputFormat::Json,
            schema: Some(json!({"type": "object", "properties": {"topic": {"type": "string"}}})),
        },
        output: AgentOutputSettings {
            format: Some(ReportFormat::Json),
            schema: Some(json!({"type": "object", "required": ["found"]})),
        },
        prompt: "It is ${DATETIME}. Find it out.".to_owned(),
        ..AgentSettings::new(name("research_assistant"))
    }
}

#[test]
fn every_setting_of_an_agent_is_read() {
    let folder = folder(&[
        ("a/research.ai", FULL_AGENT),
        ("a/writer.md", &agent("", "Write.")),
        ("a/clerk.ai", &agent("", "File.")),
        ("a/editor.md", &agent("", "Edit.")),
        ("a/answer.yaml", "type: object\nrequired: [found]\n"),
    ]);
    let file = load_agent(&folder.path().join("a/research.ai"), folder.path()).unwrap();
    assert_eq!(file.warnings, []);
    assert_eq!(
        file.agents.keys().map(ToolName::as_str).collect::<Vec<_>>(),
        ["writer", "clerk", "editor", "research_assistant"]
    );
    let path = folder.path().canonicalize().unwrap().join("a/research.ai");
    assert_eq!(file.agents[&file.name], AgentSettings { path, ..full_agent_settings() });
}

#[test]
fn an_agent_needs_only_a_model_and_a_prompt() {
    let folder = folder(&[("My agent.v2.md", "---\nmodels: local/small\n---\nDo it.")]);
    let file = load_agent(&folder.path().join("My agent.v2.md"), folder.path()).unwrap();
    let expected = AgentSettings {
        path: folder.path().canonicalize().unwrap().join("My agent.v2.md"),
        models: vec!["local/small".parse().unwrap()],
        prompt: "Do it.".to_owned(),
        ..AgentSettings::new(name("my_agent_v2"))
    };
    assert_eq!(file.agents[&file.name], expected);
}

/// An agent file with an error in every setting.
const BAD_AGENT: &str = "---
models: [large]
maxturns: 3
maxTurns: many
temperature: 3
topK: 0
llmTimeout: 0
reasoning: hard
toolOutput: {overlapPercent: 60, maxChunks: 0}
output: {format: html}
input: {format: json}
toolName: '!!!'
tools: [1]
---
";

#[test]
fn all_problems_are_reported_at_once() {
    assert_snapshot!(load_summary(&[("bad.md", BAD_AGENT)]), @"
    error[config_invalid]: bad.md:2:10  models[0]
       2 | models: [large]
         |          ^^^^^ invalid model 'large': expected PROVIDER/model, with a name defined under providers
    error[config_invalid]: bad.md:3:1  maxturns
       3 | maxturns: 3
         | ^^^^^^^^ unknown setting
      help: did you mean maxTurns?
    error[config_invalid]: bad.md:4:11  maxTurns
       4 | maxTurns: many
         |           ^^^^ expected a non-negative integer, not a string
    error[config_invalid]: bad.md:5:14  temperature
       5 | temperature: 3
         |              ^ expected a number from 0 to 2, not 3
    error[config_invalid]: bad.md:6:7  topK
       6 | topK: 0
         |       ^ expected a number of at least 1, not 0
    error[config_invalid]: bad.md:7:13  llmTimeout
       7 | llmTimeout: 0
         |             ^ a timeout must be greater than 0
      help: set a duration such as 60s
    error[config_invalid]: bad.md:8:12  reasoning
       8 | reasoning: hard
         |            ^^^^ unknown value 'hard', expected one of none, minimal, low, medium, high
    error[config_invalid]: bad.md:9:30  toolOutput.overlapPercent
       9 | toolOutput: {overlapPercent: 60, maxChunks: 0}
         |                              ^^ expected a number from 0 to 50, not 60
    error[config_invalid]: bad.md:9:45  toolOutput.maxChunks
       9 | toolOutput: {overlapPercent: 60, maxChunks: 0}
         |                                             ^ expected a number of at least 1, not 0
    error[config_invalid]: bad.md:10:18  output.format
      10 | output: {format: html}
         |                  ^^^^ invalid format 'html': expected one of json, markdown, slack-block-kit, tty, pipe, text, sub-agent
    error[config_invalid]: bad.md:11:17  input.format
      11 | input: {format: json}
         |                 ^^^^ JSON input requires a schema
      help: add schema or schemaRef, or set format: text
    error[config_invalid]: bad.md:12:11  toolName
      12 | toolName: '!!!'
         |           ^^^^^ invalid name: it has no letters or digits
      help: use letters, digits, '-' and '_'
    error[config_invalid]: bad.md:13:9  tools[0]
      13 | tools: [1]
         |         ^ expected a string, not a number
    error[config_invalid]: bad.md:15:1
      the agent has no prompt
      help: write the prompt below the header
    14 errors: this file was not loaded
    ");
}

#[test]
fn unsupported_settings_are_rejected_with_a_reason() {
    let settings = "advisors: [a.md]\nplugins: [x.js]\ntoolsAllowed: [read]\nrepeatPenalty: 1.1";
    assert_snapshot!(load_summary(&[("a.md", &agent(settings, "Do it."))]), @"
    error[config_invalid]: a.md:3:1  advisors
       3 | advisors: [a.md]
         | ^^^^^^^^ 'advisors' is not supported: advisors are not consulted before a run
      help: list them under agents, so that it can call them
    error[config_invalid]: a.md:4:1  plugins
       4 | plugins: [x.js]
         | ^^^^^^^ 'plugins' is not supported: agents load no plugin code
      help: use a tool instead
    error[config_invalid]: a.md:5:1  toolsAllowed
       5 | toolsAllowed: [read]
         | ^^^^^^^^^^^^ 'toolsAllowed' is not supported: tool filters belong to the server's configuration
      help: set it on the server in the configuration
    error[config_invalid]: a.md:6:1  repeatPenalty
       6 | repeatPenalty: 1.1
         | ^^^^^^^^^^^^^ 'repeatPenalty' is not supported: model requests do not include it
      help: use temperature and topP
    4 errors: this file was not loaded
    ");
}

#[test]
fn invalid_agent_files_are_reported() {
    for (text, expected) in [
        ("Do it.", "expected a header: an agent file starts with ---"),
        ("---\nmodels: [p/m]\nDo it.", "unclosed header"),
        ("---\n- models\n---\nDo it.", "a header must be an object of settings, not a list"),
        ("---\n---\nDo it.", "the agent has no model"),
        ("---\nmodels: [p/m\n---\nDo it.", "Invalid YAML"),
        ("---\nmodels: [p/m]\nmodels: [p/n]\n---\nDo it.", "duplicate key 'models', first defined in line 2"),
        (
            "---\nmodels: [p/m]\ntoolName: final_report\n---\nDo it.",
            "agent__final_report is reserved for a built-in tool",
        ),
        (
            "---\nmodels: [p/m]\nreasoning: low\nreasoningTokens: 5\n---\nDo it.",
            "reasoning and reasoningTokens are mutually exclusive",
        ),
        ("", "the file is empty"),
    ] {
        let summary = load_summary(&[("a.md", text)]);
        assert!(summary.contains(expected), "{text:?}: {summary}");
    }
}

#[test]
fn includes_are_expanded() {
    let main = agent("", "Be ${include:how.txt}, and {{include:parts/more.md}}.");
    let files = [
        ("main.md", main.as_str()),
        ("how.txt", "brief\n"),
        ("parts/more.md", "see ${include:deeper/end.md}\r\n"),
        ("parts/deeper/end.md", "${DATETIME}"),
    ];
    assert_eq!(load_summary(&files), "main: Be brief, and see ${DATETIME}.");
}

#[test]
fn invalid_includes_are_reported() {
    let prompt = "${include:gone.md}\n${include:.env} ${include:.env.local}\n${include:}\n{{include:x\n${include:round.md}";
    let main = agent("", prompt);
    let files = [
        ("main.md", main.as_str()),
        (".env", "KEY=1"),
        ("round.md", "${include:back.md}"),
        ("back.md", "${include:round.md}"),
    ];
    assert_snapshot!(load_summary(&files), @"
    error[config_invalid]: main.md:5:1
       5 | ${include:gone.md}
         | ^^^^^^^^^^^^^^^^^^ no such file: 'gone.md'
      help: check the path; it is relative to the directory of this file
    error[config_invalid]: main.md:6:1
       6 | ${include:.env} ${include:.env.local}
         | ^^^^^^^^^^^^^^^ '.env' may contain secrets, which models must not see
      help: move the text for the model to a file with another name
    error[config_invalid]: main.md:6:17
       6 | ${include:.env} ${include:.env.local}
         |                 ^^^^^^^^^^^^^^^^^^^^^ '.env.local' may contain secrets, which models must not see
      help: move the text for the model to a file with another name
    error[config_invalid]: main.md:7:1
       7 | ${include:}
         | ^^^^^^^^^^^ the include names no file
      help: name a file, relative to the directory of this one
    error[config_invalid]: main.md:8:1
       8 | {{include:x
         | ^^^^^^^^^^^ unclosed include
      help: close it with }}
    error[config_invalid]: back.md:1:1
       1 | ${include:round.md}
         | ^^^^^^^^^^^^^^^^^^^ the file includes itself: round.md -> back.md -> round.md
      help: remove one of them
    6 errors: these files were not loaded
    ");
}

#[test]
fn includes_nest_up_to_eight_levels() {
    let chain = |n_files: usize| {
        let main = agent("", "${include:1.md}");
        let mut files = vec![("main.md".to_owned(), main)];
        for number in 1..n_files {
            files.push((format!("{number}.md"), format!("${{include:{}.md}}", number + 1)));
        }
        files.push((format!("{n_files}.md"), "the end".to_owned()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        load_summary(&files)
    };
    assert_eq!(chain(8), "main: the end");
    assert!(chain(9).contains("includes are nested deeper than 8 levels"), "{}", chain(9));
}

#[test]
fn an_agent_outside_of_the_project_includes_from_its_own_directory() {
    let files = folder(&[
        ("project/pegboard.yaml", ""),
        ("shared/a.md", &agent("", "${include:b.md}")),
        ("shared/b.md", "fine"),
        ("shared/c.md", &agent("", "${include:../project/pegboard.yaml}")),
    ]);
    let load = |path: &str| load_agent(&files.path().join(path), &files.path().join("project"));
    assert_eq!(load("shared/a.md").unwrap().agents[0].prompt, "fine");
    assert!(load("shared/c.md").unwrap_err().to_string().contains("is outside of"));
}

#[cfg(unix)]
#[test]
fn a_symlink_cannot_escape_or_expose_secrets() {
    let files = folder(&[
        ("a/out.md", &agent("", "${include:link-out.txt}")),
        ("a/secret.md", &agent("", "${include:link-secret.txt}")),
        ("a/.env", "KEY=1"),
        ("secrets.txt", "KEY=1"),
    ]);
    let link =
        |from: &str, to: &str| std::os::unix::fs::symlink(from, files.path().join("a").join(to)).unwrap();
    link("../secrets.txt", "link-out.txt");
    link(".env", "link-secret.txt");
    let load_error =
        |path: &str| load_agent(&files.path().join(path), &files.path().join("a")).unwrap_err().to_string();
    assert!(load_error("a/out.md").contains("'link-out.txt' is outside of"), "{}", load_error("a/out.md"));
    assert!(
        load_error("a/secret.md").contains("'link-secret.txt' may contain secrets"),
        "{}",
        load_error("a/secret.md")
    );
}

#[test]
fn includes_are_limited_in_number_and_size() {
    let line = "${include:2.md}".repeat(200);
    let (main, one) = (agent("", &line.replace('2', "1")), line.as_str());
    let summary = load_summary(&[("main.md", &main), ("1.md", one), ("2.md", "x")]);
    assert!(summary.contains("the prompt has more than 1000 includes"), "{summary}");
    let long = "x".repeat(600_000);
    let summary = super::agents::load_summary(&[
        ("main.md", &agent("", "${include:1.md}${include:1.md}")),
        ("1.md", &long),
    ]);
    assert!(summary.contains("the prompt is larger than 1 MiB"), "{}", summary.len());
}

#[test]
fn a_schema_file_is_read_or_reported() {
    for (settings, file, expected) in [
        ("output: {format: json, schemaRef: s.json}", "{\"type\": \"object\"}", "a: Do it."),
        ("output: {format: json, schemaRef: s.json}", "{\"type\": }", "s.json:1:10"),
        ("output: {format: json, schemaRef: s.json}", "", "'s.json' is empty"),
        ("output: {format: json, schemaRef: s.json}", "[]", "invalid JSON Schema"),
        ("output: {format: json, schemaRef: s.json}", "{\"type\": \"thing\"}", "invalid JSON Schema"),
        ("output: {format: json, schemaRef: t.json}", "", "no such file: 't.json'"),
        (
            "output: {format: json, schema: {}, schemaRef: s.json}",
            "{}",
            "schema and schemaRef are mutually exclusive",
        ),
        ("output: {format: markdown, schema: {}}", "", "a schema requires format: json"),
        ("input: {schemaRef: s.json}", "{}", "a schema requires format: json"),
        ("input: {format: json}", "", "JSON input requires a schema"),
    ] {
        let main = agent(settings, "Do it.");
        let summary = load_summary(&[("a.md", &main), ("s.json", file)]);
        assert!(summary.contains(expected), "{settings}: {summary}");
    }
}

#[test]
fn agents_that_call_each_other_are_rejected() {
    let (a, b) = (agent("agents: [b.md]", "A."), agent("agents: [a.md]", "B."));
    assert_snapshot!(load_summary(&[("a.md", &a), ("b.md", &b)]), @"
    error[config_invalid]: b.md:3:10  agents[0]
       3 | agents: [a.md]
         |          ^^^^ Recursion detected while loading sub-agent: a.md
      help: remove the reference that closes the cycle
    error[config_invalid]: a.md:3:10  agents[0]
       3 | agents: [b.md]
         |          ^^^^ the agent 'b' cannot be used
      help: fix the problems reported for its file
    2 errors: these files were not loaded
    ");
    let alone = agent("agents: a.md", "A.");
    assert!(load_summary(&[("a.md", &alone)]).contains("Recursion detected while loading sub-agent: a.md"));
}

#[test]
fn a_handoff_cycle_is_rejected() {
    let (a, b, c) = (
        agent("router: {destinations: [b.md]}", "A."),
        agent("handoff: c.md", "B."),
        agent("router: {destinations: [a.md]}", "C."),
    );
    assert_snapshot!(load_summary(&[("a.md", &a), ("b.md", &b), ("c.md", &c)]), @"
    error[config_invalid]: c.md:3:25  router.destinations[0]
       3 | router: {destinations: [a.md]}
         |                         ^^^^ Orchestration cycle detected: a -> b -> c -> a.
      help: remove one of the handoffs
    error[config_invalid]: b.md:3:10  handoff
       3 | handoff: c.md
         |          ^^^^ the agent 'c' cannot be used
      help: fix the problems reported for its file
    error[config_invalid]: a.md:3:25  router.destinations[0]
       3 | router: {destinations: [b.md]}
         |                         ^^^^ the agent 'b' cannot be used
      help: fix the problems reported for its file
    3 errors: these files were not loaded
    ");
    // A cycle with a call in it is recursion.
    let (a, b) = (agent("router: {destinations: [b.md]}", "A."), agent("agents: [a.md]", "B."));
    assert!(
        load_summary(&[("a.md", &a), ("b.md", &b)])
            .contains("Recursion detected while loading sub-agent: a.md")
    );
}

#[test]
fn a_diamond_is_not_a_cycle() {
    let (a, b, c) =
        (agent("agents: [b.md, c.md]", "A."), agent("agents: [d.md]", "B."), agent("agents: [d.md]", "C."));
    let d = agent("", "D.");
    assert_snapshot!(load_summary(&[("a.md", &a), ("b.md", &b), ("c.md", &c), ("d.md", &d)]), @"
    d: D.
    b: B.
    c: C.
    a: A.
    ");
}

#[test]
fn agent_names_are_unique() {
    let (a, b) = (agent("agents: [one/b.md, two/b.md, two/c.md, one/b.md]", "A."), agent("", "B."));
    let c = agent("toolName: B", "C.");
    let files = [("a.md", a.as_str()), ("one/b.md", &b), ("two/b.md", &b), ("two/c.md", &c)];
    assert_snapshot!(load_summary(&files), @"
    error[config_invalid]: a.md:3:20  agents[1]
       3 | agents: [one/b.md, two/b.md, two/c.md, one/b.md]
         |                    ^^^^^^^^ Duplicate sub-agent tool name 'b' detected during preload.
      help: set a toolName that differs from that of one/b.md
    error[config_invalid]: a.md:3:30  agents[2]
       3 | agents: [one/b.md, two/b.md, two/c.md, one/b.md]
         |                              ^^^^^^^^ Duplicate sub-agent tool name 'b' detected during preload.
      help: set a toolName that differs from that of one/b.md
    error[config_invalid]: a.md:3:40  agents[3]
       3 | agents: [one/b.md, two/b.md, two/c.md, one/b.md]
         |                                        ^^^^^^^^ duplicate agent 'b'
      help: remove one of them
    3 errors: this file was not loaded
    ");
}

/// Lists every agent of every toolbox, and all problems.
fn listed(configuration: &Configuration, folder: &TempDir) -> String {
    let line = |entry: &AgentEntry| entry.unusable_reason().unwrap_or_else(|| "usable".to_owned());
    let agents = configuration.toolboxes.iter().flat_map(|(toolbox, described)| {
        described.agents.iter().map(move |(name, entry)| format!("{toolbox}/{name}: {}", line(entry)))
    });
    let problems = configuration.problems.iter().map(ConfigProblem::render);
    without(folder, &agents.chain(problems).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_bad_agent_is_left_out_alone() {
    let configuration = r#"
agents: [agents/*.ai, "${A}.md"]
toolboxes:
  desk:
    description: Writing
    agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
"#;
    let folder = folder(&[
        ("pegboard.yaml", configuration),
        ("1.md", &agent("", "One.")),
        ("agents/x.ai", &agent("agents: [../good.md]", "X.")),
        ("agents/y.ai", &agent("maxTurn: 3", "Y.")),
        ("agents/z.md", "no agent"),
        ("good.md", &agent("", "Good.")),
        ("needs-bad.md", &agent("agents: [agents/y.ai]", "Needs it.")),
    ]);
    let loaded = pegboard_config::load(&folder.path().join("pegboard.yaml"), &environment).unwrap();
    assert_snapshot!(listed(&loaded, &folder), @r#"
    default/good: usable
    default/x: usable
    default/y: agents/y.ai:3: unknown setting
    default/1: usable
    desk/good: usable
    desk/y: agents/y.ai:3: unknown setting
    desk/needs-bad: needs-bad.md:3: the agent 'y' cannot be used
    error[config_invalid]: pegboard.yaml:6:14  toolboxes.desk.agents[0]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |              ^^^^^^^ no such agent file: gone.md
      help: check the path; it is relative to the directory of this file
    error[config_invalid]: pegboard.yaml:6:23  toolboxes.desk.agents[1]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |                       ^^^^^^^^^ no file matches this pattern
      help: check the pattern; it is relative to the directory of this file
    error[config_invalid]: pegboard.yaml:6:34  toolboxes.desk.agents[2]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |                                  ^ expected the path of a file, not a number
    warning: pegboard.yaml:6:38  toolboxes.desk.agents[3]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |                                      ^^^^^^^^^^ the variable NOT_SET is not set
      help: export NOT_SET=…, or add a default: ${NOT_SET:-}
    error[config_invalid]: agents/y.ai:3:1  maxTurn
       3 | maxTurn: 3
         | ^^^^^^^ unknown setting
      help: did you mean maxTurns?
    error[config_invalid]: needs-bad.md:3:10  agents[0]
       3 | agents: [agents/y.ai]
         |          ^^^^^^^^^^^ the agent 'y' cannot be used
      help: fix the problems reported for its file
    "#);
}

#[test]
fn the_schema_accepts_lists_of_agents() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let check = |text: &str| validator.is_valid(&serde_saphyr::from_str::<Value>(text).unwrap());
    assert!(check("{agents: [a.md, 'agents/*.ai'], toolboxes: {t: {agents: a.md}}}"));
    assert!(!check("{agents: {a: a.md}}"));
}

#[test]
fn foreign_agents_are_ignored() {
    let folder =
        folder(&[("mcp.json", r#"{"mcpServers": {"a": {"command": "x"}}, "agents": {"main": {}}}"#)]);
    let loaded = pegboard_config::load(&folder.path().join("mcp.json"), &environment).unwrap();
    assert_snapshot!(listed(&loaded, &folder), @r#"
    warning: mcp.json:1:51  agents
       1 | {"mcpServers": {"a": {"command": "x"}}, "agents": {"main": {}}}
         |                                                   ^^^^^^^^^^^^ unknown setting, ignored
    "#);
    let folder = super::load_text("pegboard.json", r#"{"agents": {"main": {}}}"#).unwrap_err().to_string();
    assert!(folder.contains("expected a list of files, not an object"), "{folder}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// No file contents cause a panic, and every problem has a location.
    #[test]
    fn any_text_is_an_agent_or_an_error(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "---", "\n", "\r\n", "#!", "models: [p/m]", "agents: [a.md]", "router: {destinations: [a.md]}",
                "${include:", "{{include:", "}", "}}", "a.md", "é", "\u{feff}", "${", "input: {format: json}", ": ", "- ",
                "{", "\t", "maxTurns: ", "9", "\"",
            ]),
            0..40,
        ),
    ) {
        let text = pieces.concat();
        let folder = folder(&[("a.md", &text)]);
        if let Err(error) = load_agent(&folder.path().join("a.md"), folder.path()) {
            prop_assert!(!error.problems().is_empty(), "{error}");
            prop_assert!(error.problems().iter().all(|problem| problem.line > 0 && problem.column > 0));
        }
    }
}
