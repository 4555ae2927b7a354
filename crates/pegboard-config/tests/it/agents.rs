//! Agents, which are files of their own.

use std::time::Duration;

use insta::assert_snapshot;
use pegboard_config::{AgentEntry, Configuration, Problem, load_agent, native_schema};
use pegboard_core::id::ToolName;
use pegboard_core::model::{Caching, Delivery, Reasoning};
use pegboard_core::settings::agent::{
    AgentSettings, InputFormat, InputSettings, ReportFormat, ReportSettings, ToolOutputSettings,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::environment;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// A text without the folder that it speaks of.
fn without(folder: &TempDir, text: &str) -> String {
    let canonical = folder.path().canonicalize().unwrap();
    let text = text.replace(&format!("{}/", folder.path().display()), "");
    text.replace(&format!("{}/", canonical.display()), "").replace(&canonical.display().to_string(), "HERE")
}

/// What is wrong with the agent in the first of these files, or what it and those that it names are.
fn told(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    match load_agent(&folder.path().join(files[0].0), folder.path()) {
        Err(error) => without(&folder, &error.to_string()),
        Ok(file) => {
            let agents = file.agents.values().map(|agent| format!("{}: {}", agent.name, agent.prompt));
            let warnings = file.warnings.iter().map(Problem::render);
            without(&folder, &agents.chain(warnings).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// An agent with a model, a few more settings and a prompt.
fn agent(settings: &str, prompt: &str) -> String {
    format!("---\nmodels: [p/m]\n{settings}\n---\n{prompt}\n")
}

fn name(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

/// An agent that says everything there is to say.
pub(crate) const WHOLE: &str = r#"#!/usr/bin/env pegboard
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

/// What it comes to, but for its place.
fn whole() -> AgentSettings {
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
        reasoning: Some(Reasoning::High),
        caching: Caching::Automatic,
        cache: Some("5m".parse().unwrap()),
        llm_timeout: Duration::from_mins(1),
        tool_timeout: Duration::from_secs(30),
        tool_response_max_bytes: 1_024,
        tool_output: ToolOutputSettings {
            is_enabled: Some(true),
            max_chunks: Some(2),
            overlap_percent: Some(20),
            avg_line_bytes_threshold: Some(500),
            models: vec!["local/small".parse().unwrap()],
        },
        context_window: Some(32_000),
        delivery: Delivery::Whole,
        input: InputSettings {
            format: InputFormat::Json,
            schema: Some(json!({"type": "object", "properties": {"topic": {"type": "string"}}})),
        },
        output: ReportSettings {
            format: Some(ReportFormat::Json),
            schema: Some(json!({"type": "object", "required": ["found"]})),
        },
        prompt: "It is ${DATETIME}. Find it out.".to_owned(),
        ..AgentSettings::new(name("research_assistant"))
    }
}

#[test]
fn every_setting_of_an_agent_arrives() {
    let folder = folder(&[
        ("a/research.ai", WHOLE),
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
    assert_eq!(file.agents[&file.name], AgentSettings { path, ..whole() });
}

#[test]
fn an_agent_needs_a_model_and_a_prompt_and_nothing_else() {
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

/// An agent of which nothing is right.
const BAD: &str = "---
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
fn all_that_is_wrong_is_told_at_once() {
    assert_snapshot!(told(&[("bad.md", BAD)]), @"
    error[config_invalid]: bad.md:2:10  models[0]
       2 | models: [large]
         |          ^^^^^ 'large' is no model: write PROVIDER/model, with one of the names under providers
    error[config_invalid]: bad.md:3:1  maxturns
       3 | maxturns: 3
         | ^^^^^^^^ unknown setting
      help: did you mean maxTurns?
    error[config_invalid]: bad.md:4:11  maxTurns
       4 | maxTurns: many
         |           ^^^^ expected a whole number from 0 on, not a text
    error[config_invalid]: bad.md:5:14  temperature
       5 | temperature: 3
         |              ^ expected a number from 0 to 2, not 3
    error[config_invalid]: bad.md:6:7  topK
       6 | topK: 0
         |       ^ expected a number from 1 on, not 0
    error[config_invalid]: bad.md:7:13  llmTimeout
       7 | llmTimeout: 0
         |             ^ nobody is waited for without an end
      help: give a time
    error[config_invalid]: bad.md:8:12  reasoning
       8 | reasoning: hard
         |            ^^^^ 'hard' is none of none, minimal, low, medium, high
    error[config_invalid]: bad.md:9:30  toolOutput.overlapPercent
       9 | toolOutput: {overlapPercent: 60, maxChunks: 0}
         |                              ^^ expected a number from 0 to 50, not 60
    error[config_invalid]: bad.md:9:45  toolOutput.maxChunks
       9 | toolOutput: {overlapPercent: 60, maxChunks: 0}
         |                                             ^ expected a number from 1 on, not 0
    error[config_invalid]: bad.md:10:18  output.format
      10 | output: {format: html}
         |                  ^^^^ 'html' is none of json, markdown, slack-block-kit, tty, pipe, text, sub-agent
    error[config_invalid]: bad.md:11:17  input.format
      11 | input: {format: json}
         |                 ^^^^ nobody could know what to ask with: the schema is missing
      help: add schema or schemaRef, or write format: text
    error[config_invalid]: bad.md:12:11  toolName
      12 | toolName: '!!!'
         |           ^^^^^ this has no character that a name can have
      help: use letters, digits, '-' and '_'
    error[config_invalid]: bad.md:13:9  tools[0]
      13 | tools: [1]
         |         ^ expected a text, not a number
    error[config_invalid]: bad.md:15:1
      the agent has no prompt
      help: say below the header what it should do
    14 errors: nothing of this file is used
    ");
}

#[test]
fn settings_that_only_others_have_are_refused_with_the_reason() {
    let settings = "advisors: [a.md]\nplugins: [x.js]\ntoolsAllowed: [read]\nrepeatPenalty: 1.1";
    assert_snapshot!(told(&[("a.md", &agent(settings, "Do it."))]), @"
    error[config_invalid]: a.md:3:1  advisors
       3 | advisors: [a.md]
         | ^^^^^^^^ 'advisors' is not supported: nobody is asked before an agent begins
      help: name them under agents, so that it can ask them
    error[config_invalid]: a.md:4:1  plugins
       4 | plugins: [x.js]
         | ^^^^^^^ 'plugins' is not supported: no code is loaded into an agent
      help: give it a tool instead
    error[config_invalid]: a.md:5:1  toolsAllowed
       5 | toolsAllowed: [read]
         | ^^^^^^^^^^^^ 'toolsAllowed' is not supported: what may be used of a server is said where the server is
      help: set it in the configuration
    error[config_invalid]: a.md:6:1  repeatPenalty
       6 | repeatPenalty: 1.1
         | ^^^^^^^^^^^^^ 'repeatPenalty' is not supported: requests to models do not carry it
      help: use temperature and topP
    4 errors: nothing of this file is used
    ");
}

#[test]
fn what_is_no_agent_file_is_told() {
    for (text, expected) in [
        ("Do it.", "an agent file begins with a header, and this is none"),
        ("---\nmodels: [p/m]\nDo it.", "the header begins here and never ends"),
        ("---\n- models\n---\nDo it.", "a header is an object of settings, not a list"),
        ("---\n---\nDo it.", "the agent has no model"),
        ("---\nmodels: [p/m\n---\nDo it.", "Invalid YAML"),
        ("---\nmodels: [p/m]\nmodels: [p/n]\n---\nDo it.", "'models' is here twice, first in line 2"),
        (
            "---\nmodels: [p/m]\ntoolName: final_report\n---\nDo it.",
            "agent__final_report is a tool that every agent has",
        ),
        (
            "---\nmodels: [p/m]\nreasoning: low\nreasoningTokens: 5\n---\nDo it.",
            "how hard it thinks is said twice",
        ),
        ("", "the file is empty"),
    ] {
        let told = told(&[("a.md", text)]);
        assert!(told.contains(expected), "{text:?}: {told}");
    }
}

#[test]
fn files_are_put_into_a_prompt() {
    let main = agent("", "Be ${include:how.txt}, and {{include:parts/more.md}}.");
    let files = [
        ("main.md", main.as_str()),
        ("how.txt", "brief\n"),
        ("parts/more.md", "see ${include:deeper/end.md}\r\n"),
        ("parts/deeper/end.md", "${DATETIME}"),
    ];
    assert_eq!(told(&files), "main: Be brief, and see ${DATETIME}.");
}

#[test]
fn files_that_must_not_be_put_in_are_told() {
    let prompt = "${include:gone.md}\n${include:.env} ${include:.env.local}\n${include:}\n{{include:x\n${include:round.md}";
    let main = agent("", prompt);
    let files = [
        ("main.md", main.as_str()),
        (".env", "KEY=1"),
        ("round.md", "${include:back.md}"),
        ("back.md", "${include:round.md}"),
    ];
    assert_snapshot!(told(&files), @"
    error[config_invalid]: main.md:5:1
       5 | ${include:gone.md}
         | ^^^^^^^^^^^^^^^^^^ there is no file 'gone.md'
      help: check the path; it begins in the folder of this file
    error[config_invalid]: main.md:6:1
       6 | ${include:.env} ${include:.env.local}
         | ^^^^^^^^^^^^^^^ '.env' may hold secrets, which no model should see
      help: put what the model may see into a file of another name
    error[config_invalid]: main.md:6:17
       6 | ${include:.env} ${include:.env.local}
         |                 ^^^^^^^^^^^^^^^^^^^^^ '.env.local' may hold secrets, which no model should see
      help: put what the model may see into a file of another name
    error[config_invalid]: main.md:7:1
       7 | ${include:}
         | ^^^^^^^^^^^ no file is named
      help: name one, from the folder of this file
    error[config_invalid]: main.md:8:1
       8 | {{include:x
         | ^^^^^^^^^^^ the name of the file never ends
      help: end it with }}
    error[config_invalid]: back.md:1:1
       1 | ${include:round.md}
         | ^^^^^^^^^^^^^^^^^^^ the file is put into itself: round.md -> back.md -> round.md
      help: take one of them away
    6 errors: nothing of these files is used
    ");
}

#[test]
fn files_are_put_into_one_another_eight_times() {
    let chain = |n_files: usize| {
        let main = agent("", "${include:1.md}");
        let mut files = vec![("main.md".to_owned(), main)];
        for number in 1..n_files {
            files.push((format!("{number}.md"), format!("${{include:{}.md}}", number + 1)));
        }
        files.push((format!("{n_files}.md"), "the end".to_owned()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        told(&files)
    };
    assert_eq!(chain(8), "main: the end");
    assert!(chain(9).contains("files are put into one another more than 8 times"), "{}", chain(9));
}

#[test]
fn an_agent_outside_of_the_project_has_its_own_folder() {
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
fn a_link_does_not_lead_out_or_to_secrets() {
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
    let told =
        |path: &str| load_agent(&files.path().join(path), &files.path().join("a")).unwrap_err().to_string();
    assert!(told("a/out.md").contains("'link-out.txt' is outside of"), "{}", told("a/out.md"));
    assert!(told("a/secret.md").contains("'link-secret.txt' may hold secrets"), "{}", told("a/secret.md"));
}

#[test]
fn files_that_multiply_come_to_an_end() {
    let line = "${include:2.md}".repeat(200);
    let (main, one) = (agent("", &line.replace('2', "1")), line.as_str());
    let told = told(&[("main.md", &main), ("1.md", one), ("2.md", "x")]);
    assert!(told.contains("more than 1000 files are put into the prompt"), "{told}");
    let long = "x".repeat(600_000);
    let told =
        super::agents::told(&[("main.md", &agent("", "${include:1.md}${include:1.md}")), ("1.md", &long)]);
    assert!(told.contains("the prompt has more than 1 MiB"), "{}", told.len());
}

#[test]
fn a_schema_of_a_file_is_read_or_told() {
    for (settings, file, expected) in [
        ("output: {format: json, schemaRef: s.json}", "{\"type\": \"object\"}", "a: Do it."),
        ("output: {format: json, schemaRef: s.json}", "{\"type\": }", "s.json:1:10"),
        ("output: {format: json, schemaRef: s.json}", "", "'s.json' is empty"),
        ("output: {format: json, schemaRef: s.json}", "[]", "this is no JSON Schema"),
        ("output: {format: json, schemaRef: s.json}", "{\"type\": \"thing\"}", "this is no JSON Schema"),
        ("output: {format: json, schemaRef: t.json}", "", "there is no file 't.json'"),
        ("output: {format: json, schema: {}, schemaRef: s.json}", "{}", "the schema is here twice"),
        ("output: {format: markdown, schema: {}}", "", "a schema is of use for JSON only"),
        ("input: {schemaRef: s.json}", "{}", "a schema is of use for JSON only"),
        ("input: {format: json}", "", "the schema is missing"),
    ] {
        let main = agent(settings, "Do it.");
        let told = told(&[("a.md", &main), ("s.json", file)]);
        assert!(told.contains(expected), "{settings}: {told}");
    }
}

#[test]
fn agents_that_call_one_another_are_refused() {
    let (a, b) = (agent("agents: [b.md]", "A."), agent("agents: [a.md]", "B."));
    assert_snapshot!(told(&[("a.md", &a), ("b.md", &b)]), @"
    error[config_invalid]: b.md:3:10  agents[0]
       3 | agents: [a.md]
         |          ^^^^ Recursion detected while loading sub-agent: a.md
      help: let no agent call one that calls it
    error[config_invalid]: a.md:3:10  agents[0]
       3 | agents: [b.md]
         |          ^^^^ the agent 'b' cannot be used
      help: correct it; what is wrong is told of its file
    2 errors: nothing of these files is used
    ");
    let alone = agent("agents: a.md", "A.");
    assert!(told(&[("a.md", &alone)]).contains("Recursion detected while loading sub-agent: a.md"));
}

#[test]
fn agents_that_hand_over_in_a_round_are_refused() {
    let (a, b, c) = (
        agent("router: {destinations: [b.md]}", "A."),
        agent("handoff: c.md", "B."),
        agent("router: {destinations: [a.md]}", "C."),
    );
    assert_snapshot!(told(&[("a.md", &a), ("b.md", &b), ("c.md", &c)]), @"
    error[config_invalid]: c.md:3:25  router.destinations[0]
       3 | router: {destinations: [a.md]}
         |                         ^^^^ Orchestration cycle detected: a -> b -> c -> a.
      help: let the last of them hand over to nobody
    error[config_invalid]: b.md:3:10  handoff
       3 | handoff: c.md
         |          ^^^^ the agent 'c' cannot be used
      help: correct it; what is wrong is told of its file
    error[config_invalid]: a.md:3:25  router.destinations[0]
       3 | router: {destinations: [b.md]}
         |                         ^^^^ the agent 'b' cannot be used
      help: correct it; what is wrong is told of its file
    3 errors: nothing of these files is used
    ");
    // A round that is not only handed over is a call of oneself.
    let (a, b) = (agent("router: {destinations: [b.md]}", "A."), agent("agents: [a.md]", "B."));
    assert!(told(&[("a.md", &a), ("b.md", &b)]).contains("Recursion detected while loading sub-agent: a.md"));
}

#[test]
fn a_diamond_is_no_round() {
    let (a, b, c) =
        (agent("agents: [b.md, c.md]", "A."), agent("agents: [d.md]", "B."), agent("agents: [d.md]", "C."));
    let d = agent("", "D.");
    assert_snapshot!(told(&[("a.md", &a), ("b.md", &b), ("c.md", &c), ("d.md", &d)]), @"
    d: D.
    b: B.
    c: C.
    a: A.
    ");
}

#[test]
fn a_name_can_be_taken_once() {
    let (a, b) = (agent("agents: [one/b.md, two/b.md, two/c.md, one/b.md]", "A."), agent("", "B."));
    let c = agent("toolName: B", "C.");
    let files = [("a.md", a.as_str()), ("one/b.md", &b), ("two/b.md", &b), ("two/c.md", &c)];
    assert_snapshot!(told(&files), @"
    error[config_invalid]: a.md:3:20  agents[1]
       3 | agents: [one/b.md, two/b.md, two/c.md, one/b.md]
         |                    ^^^^^^^^ Duplicate sub-agent tool name 'b' detected during preload.
      help: give it another toolName than one/b.md has
    error[config_invalid]: a.md:3:30  agents[2]
       3 | agents: [one/b.md, two/b.md, two/c.md, one/b.md]
         |                              ^^^^^^^^ Duplicate sub-agent tool name 'b' detected during preload.
      help: give it another toolName than one/b.md has
    error[config_invalid]: a.md:3:40  agents[3]
       3 | agents: [one/b.md, two/b.md, two/c.md, one/b.md]
         |                                        ^^^^^^^^ the agent 'b' is here twice
      help: take one of them away
    3 errors: nothing of this file is used
    ");
}

/// Every agent of every toolbox in a line, and all problems.
fn listed(configuration: &Configuration, folder: &TempDir) -> String {
    let line = |entry: &AgentEntry| entry.obstacle().unwrap_or_else(|| "usable".to_owned());
    let agents = configuration.toolboxes.iter().flat_map(|(toolbox, described)| {
        described.agents.iter().map(move |(name, entry)| format!("{toolbox}/{name}: {}", line(entry)))
    });
    let problems = configuration.problems.iter().map(Problem::render);
    without(folder, &agents.chain(problems).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_configuration_names_agents_and_a_bad_one_is_left_out_alone() {
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
         |              ^^^^^^^ there is no agent gone.md
      help: check the path; it begins in the folder of this file
    error[config_invalid]: pegboard.yaml:6:23  toolboxes.desk.agents[1]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |                       ^^^^^^^^^ there is no file that this names
      help: check the pattern; it begins in the folder of this file
    error[config_invalid]: pegboard.yaml:6:34  toolboxes.desk.agents[2]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |                                  ^ expected the path of a file, not a number
    error[config_invalid]: pegboard.yaml:6:38  toolboxes.desk.agents[3]
       6 |     agents: [gone.md, none/*.md, 7, "${NOT_SET}.md", good.md, needs-bad.md]
         |                                      ^^^^^^^^^^ the variable NOT_SET is not set
      help: export NOT_SET=…   or give a default: ${NOT_SET:-}
    error[config_invalid]: agents/y.ai:3:1  maxTurn
       3 | maxTurn: 3
         | ^^^^^^^ unknown setting
      help: did you mean maxTurns?
    error[config_invalid]: needs-bad.md:3:10  agents[0]
       3 | agents: [agents/y.ai]
         |          ^^^^^^^^^^^ the agent 'y' cannot be used
      help: correct it; what is wrong is told of its file
    "#);
}

#[test]
fn a_list_of_agents_is_what_the_schema_says() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let check = |text: &str| validator.is_valid(&serde_saphyr::from_str::<Value>(text).unwrap());
    assert!(check("{agents: [a.md, 'agents/*.ai'], toolboxes: {t: {agents: a.md}}}"));
    assert!(!check("{agents: {a: a.md}}"));
}

#[test]
fn what_others_call_agents_is_left_alone() {
    let folder =
        folder(&[("mcp.json", r#"{"mcpServers": {"a": {"command": "x"}}, "agents": {"main": {}}}"#)]);
    let loaded = pegboard_config::load(&folder.path().join("mcp.json"), &environment).unwrap();
    assert_snapshot!(listed(&loaded, &folder), @r#"
    warning: mcp.json:1:51  agents
       1 | {"mcpServers": {"a": {"command": "x"}}, "agents": {"main": {}}}
         |                                                   ^^^^^^^^^^^^ unknown setting, which is left alone
    "#);
    let folder = super::load_text("pegboard.json", r#"{"agents": {"main": {}}}"#).unwrap_err().to_string();
    assert!(folder.contains("expected a list of files, not an object"), "{folder}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing that can stand in a file makes reading it panic, and what is wrong has a place.
    #[test]
    fn any_text_is_an_agent_or_is_told(
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
