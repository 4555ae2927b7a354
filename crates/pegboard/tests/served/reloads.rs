//! Reloads: no call fails, and clients are notified.

use std::path::{Path, PathBuf};

use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::{RawJson, ResponseEvent};
use pegboard_testkit::recorder::{CannedResponse, Recorder};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use crate::harness::{
    Endpoint, PROGRAM, TEST_TIMEOUT, TestEnvironment, call, listed_once, rewrite, testkit, text,
};
use crate::lifecycle::signal;

fn of(servers: &Value) -> Value {
    json!({"pegboard": 1, "toolboxes": {"t": {"description": "T", "mcpServers": servers}}})
}

/// Starts an HTTP gateway with the profile flat.
async fn serving(environment: &TestEnvironment, servers: &Value) -> (PathBuf, Endpoint) {
    let file = environment.write("pegboard.json", &of(servers).to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    (file, endpoint)
}

async fn names(client: &McpClient, n_tools: usize) -> Vec<String> {
    let tools = listed_once(client, n_tools).await;
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Output without temporary paths and server states.
fn plain(said: &str, environment: &TestEnvironment) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with('✓')).collect();
    lines.join("\n").replace(environment.folder().to_str().unwrap(), "")
}

#[tokio::test]
async fn a_reload_keeps_calls_and_clients() {
    let environment = TestEnvironment::new();
    let (goes, stays) = (environment.server("goes", &["doze"]), environment.server("stays", &["x"]));
    let changes = |said: &str| {
        let mut server = environment.server("changes", &["environment"]);
        server["env"] = json!({"SAID_WHAT": said});
        server
    };
    let servers = json!({"goes": goes, "stays": stays, "changes": changes("before")});
    let (file, endpoint) = serving(&environment, &servers).await;
    let (session, handler) = endpoint.client(None, Era::Session).await;
    let (stateless, _) = endpoint.client(None, Era::Stateless).await;
    assert_eq!(names(&session, 3).await, ["goes__doze", "stays__x", "changes__environment"]);
    let filter = RawJson::from(json!({"notifications": {"toolsListChanged": true}}));
    let mut listening =
        stateless.request("subscriptions/listen", Some(filter), RequestOptions::default()).await.unwrap();
    let ResponseEvent::Notification(_heard) = listening.next_event().await else {
        panic!("the subscription ended")
    };
    assert_eq!(text(&call(&session, "changes__environment", json!({})).await), r#"{"SAID_WHAT":"before"}"#);
    let morning = environment.folder().join("morning");
    let until = json!({"until": morning});
    let dozing = call(&stateless, "goes__doze", until);
    let reloading = async {
        environment.wait_for_event("goes dozes").await;
        let servers = json!({"stays": stays, "changes": changes("after"), "comes": environment.server("comes", &["y"])});
        rewrite(&file, &of(&servers));
        endpoint.wait_for_line("Approve").await;
        signal(&endpoint.child, Signal::HUP);
        let said = plain(&endpoint.wait_for_line("Reloaded").await, &environment);
        insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: + t/comes  ~ t/changes");
        time::timeout(TEST_TIMEOUT, environment.wait_for_event("comes started")).await.unwrap();
        assert_eq!(names(&session, 3).await, ["stays__x", "changes__environment", "comes__y"]);
        assert_eq!(
            text(&call(&session, "changes__environment", json!({})).await),
            r#"{"SAID_WHAT":"after"}"#
        );
        assert_eq!(environment.n_running(), 4, "who still has a call lives on");
        std::fs::write(&morning, "").unwrap();
    };
    let (dozed, ()) = tokio::join!(dozing, reloading);
    assert_eq!(text(&dozed), "rested");
    environment.wait_for_event("goes gone").await;
    assert_eq!((environment.n_started(), environment.n_running()), (5, 3), "one was replaced and one came");
    assert!(
        handler.recorded().contains(&"notifications/tools/list_changed".to_owned()),
        "{:?}",
        handler.recorded()
    );
    let ResponseEvent::Notification(notice) =
        time::timeout(TEST_TIMEOUT, listening.next_event()).await.unwrap()
    else {
        panic!("the subscription ended")
    };
    assert_eq!(&*notice.method, "notifications/tools/list_changed");
}

#[tokio::test]
async fn an_invalid_file_keeps_the_running_configuration() {
    let environment = TestEnvironment::new();
    let servers =
        json!({"s": environment.server("s", &["x"]), "lacking": {"command": "${NOBODY_SETS_THIS}"}});
    let (file, endpoint) = serving(&environment, &servers).await;
    let (client, _) = endpoint.client(None, Era::Session).await;
    assert_eq!(text(&call(&client, "s__x", json!({})).await), "s/x {}");

    std::fs::write(&file, "{\"toolTimeOut\": 1}").unwrap();
    insta::assert_snapshot!(plain(&endpoint.wait_for_line("Kept").await, &environment), @r#"
    error[config_invalid]: /pegboard.json:1:2  toolTimeOut
       1 | {"toolTimeOut": 1}
         |  ^^^^^^^^^^^^^ unknown setting
      help: did you mean toolTimeout?
    1 error: this file was not loaded
    Kept  the previous configuration; fix /pegboard.json, and it is reloaded
    "#);
    std::fs::remove_file(&file).unwrap();
    insta::assert_snapshot!(plain(&endpoint.wait_for_line("Kept").await, &environment), @r#"
    error[not_found]: /pegboard.json: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}
    Kept  the previous configuration; fix /pegboard.json, and it is reloaded
    "#);
    assert_eq!(text(&call(&client, "s__x", json!({"n": 1})).await), r#"s/x {"n":1}"#);
    assert_eq!((environment.n_started(), environment.n_running()), (1, 1));

    rewrite(&file, &of(&servers));
    let said = plain(&endpoint.wait_for_line("Reloaded").await, &environment);
    assert!(said.ends_with("Reloaded  /pegboard.json: no changes"), "{said}");
    assert!(said.contains("NOBODY_SETS_THIS"), "what is wrong with one server is said again: {said}");
    assert_eq!((environment.n_started(), environment.n_running()), (1, 1));
}

#[tokio::test]
async fn the_served_profile_cannot_be_removed() {
    let environment = TestEnvironment::new();
    let servers = json!({"s": environment.server("s", &["x"])});
    let mut configuration = of(&servers);
    configuration["profiles"] = json!({"mine": {"expose": "flat"}});
    let file = environment.write("pegboard.json", &configuration.to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0", "--profile", "mine", "--no-watch"]);
    let endpoint = Endpoint::start(command).await;
    rewrite(&file, &of(&servers));
    signal(&endpoint.child, Signal::HUP);
    insta::assert_snapshot!(plain(&endpoint.wait_for_line("Kept").await, &environment), @r"
    error[config_invalid]: unknown profile 'mine'; available: meta, flat, agent, hybrid, auto
    Kept  the previous configuration; fix /pegboard.json, and send SIGHUP again
    ");
    configuration["profiles"] = json!({"mine": {"expose": "meta"}});
    configuration["toolTimeout"] = json!("7s");
    rewrite(&file, &configuration);
    signal(&endpoint.child, Signal::HUP);
    let said = plain(&endpoint.wait_for_line("Reloaded").await, &environment);
    insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: ~ settings  ~ profiles");
    let (client, _) = endpoint.client(None, Era::Session).await;
    assert_eq!(names(&client, 1).await[0], "open_toolbox");
}

#[tokio::test]
async fn unchanged_web_services_and_agents_are_not_reloaded() {
    let environment = TestEnvironment::new();
    let mut file = of(&json!({"s": environment.server("s", &["x"])}));
    file["toolboxes"]["t"]["restTools"] = json!({
        "ask": {"description": "Asks", "method": "GET", "url": "http://127.0.0.1:9/", "headers": {"X-Key": "k"}},
    });
    environment.write("terse.md", "---\nmodels: [local/small]\n---\nBe brief.\n");
    file["toolboxes"]["t"]["agents"] = json!(["terse.md"]);
    file["providers"] = json!({"local": {"type": "openai-compatible", "baseUrl": "http://127.0.0.1:9/v1"}});
    let path = environment.write("pegboard.json", &file.to_string());
    let mut command = environment.serving(&path);
    command.args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(command).await;
    file["toolTimeout"] = json!("7s");
    rewrite(&path, &file);
    let said = plain(&endpoint.wait_for_line("Reloaded").await, &environment);
    insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: ~ settings");
    file["toolboxes"]["t"]["restTools"]["ask"]["headers"]["X-Key"] = json!("another");
    rewrite(&path, &file);
    let said = plain(&endpoint.wait_for_line("Reloaded  ").await, &environment);
    insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: ~ t/rest");
    file["providers"]["local"]["baseUrl"] = json!("http://127.0.0.1:10/v1");
    rewrite(&path, &file);
    let said = plain(&endpoint.wait_for_line("Reloaded  ").await, &environment);
    insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: ~ t/agent");
}

#[tokio::test]
async fn removing_a_service_from_one_toolbox_keeps_it_in_another() {
    let environment = TestEnvironment::new();
    let service = Recorder::start([CannedResponse::json(r#"{"name": "Ada"}"#)]).await;
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "People", "version": "1"}, "servers": [{"url": service.url("")}],
        "paths": {"/user": {"get": {"operationId": "user", "responses": {"200": {"description": "ok"}}}}},
    });
    environment.write("people.json", &document.to_string());
    let people = json!({"spec": "people.json", "baseUrl": service.url("")});
    let toolbox = json!({"description": "T", "openapiSpecs": {"people": people}});
    let mut file = json!({"pegboard": 1, "toolboxes": {"one": toolbox, "other": toolbox}});
    let path = environment.write("pegboard.json", &file.to_string());
    let mut command = environment.serving(&path);
    command.args(["--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    let (client, _) = endpoint.client(None, Era::Session).await;
    file["toolboxes"].as_object_mut().unwrap().remove("one");
    rewrite(&path, &file);
    let said = plain(&endpoint.wait_for_line("Reloaded").await, &environment);
    insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: - one/people  ~ settings");
    assert_eq!(text(&call(&client, "people__user", json!({})).await), r#"{"name": "Ada"}"#);
}

/// Runs a command beside the gateway and returns its output.
async fn run(environment: &TestEnvironment, arguments: &[&str]) -> String {
    let output = environment.command(PROGRAM).args(arguments).output().await.unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    plain(&text, environment).replace(&testkit().display().to_string(), "testkit")
}

/// Changes of one server that wait for approval, with the reason.
fn changes_of_programs(environment: &TestEnvironment) -> Vec<(&'static str, Value, &'static str)> {
    let server = environment.server("s", &["environment"]);
    let with = |key: &str, value: Value| {
        let mut server = server.clone();
        server[key] = value;
        server
    };
    let folder = environment.folder().join("sub");
    std::fs::create_dir_all(&folder).unwrap();
    environment.write("more.env", "MORE=1\n");
    let mut eager = environment.server("new", &["x"]);
    eager["start"] = json!("eager");
    vec![
        ("s", with("command", json!(["/usr/bin/env", testkit()])), "changed command, arguments"),
        ("s", with("args", environment.server("other", &["y"])["args"].clone()), "changed arguments"),
        ("s", with("env", json!({"SAID_WHAT": "hello"})), "changed environment"),
        ("s", with("envFile", json!("more.env")), "changed environment"),
        ("s", with("cwd", json!(folder)), "changed folder"),
        ("new", eager, "new"),
    ]
}

#[tokio::test]
async fn new_and_changed_programs_wait_for_approval() {
    for (index, approval) in
        [(0, "command"), (1, "signal"), (2, "command"), (3, "signal"), (4, "command"), (5, "signal")]
    {
        let environment = TestEnvironment::new();
        let (name, entry, reason) = changes_of_programs(&environment).swap_remove(index);
        let mut servers = json!({"s": environment.server("s", &["environment"]), "gone": environment.server("gone", &["x"])});
        let (file, endpoint) = serving(&environment, &servers).await;
        let (client, _) = endpoint.client(None, Era::Session).await;
        names(&client, 2).await;
        assert_eq!(environment.n_started(), 2);

        servers[name] = entry;
        servers["s"]["tools"] = json!({"environment": {"tags": ["changed"]}});
        servers.as_object_mut().unwrap().remove("gone");
        let mut configuration = of(&servers);
        configuration["toolTimeout"] = json!("7s");
        rewrite(&file, &configuration);
        let said = endpoint.wait_for_line("Approve").await;
        assert!(said.contains("- t/gone"), "everything else is reloaded: {said}");
        assert!(said.contains("~ settings"), "everything else is reloaded: {said}");
        assert!(said.contains(&format!("Waiting  t/{name} ({reason}): ")), "{said}");
        environment.wait_for_event("gone gone").await;
        // The old form is still in use.
        assert_eq!(text(&call(&client, "s__environment", json!({})).await), "{}");
        let status = run(&environment, &["status", "-o", "text"]).await;
        assert!(status.contains(&format!("waiting  t/{name} ({reason})")), "{status}");
        assert!(status.contains("approve with pegboard reload"), "{status}");
        let doctor = run(&environment, &["--config", "pegboard.json", "doctor", "--no-start"]).await;
        assert!(doctor.contains(&format!("t/{name} waits for approval ({reason})")), "{doctor}");
        assert!(doctor.contains("pegboard reload"), "{doctor}");
        assert_eq!(environment.n_started(), 2, "{reason}: nothing was started");

        if approval == "signal" {
            signal(&endpoint.child, Signal::HUP);
        } else {
            let said = run(&environment, &["reload", "-o", "text"]).await;
            let refused = "error[not_approved]: the changes need your approval";
            assert!(
                said.contains(refused) && said.contains(&format!("Waiting  t/{name} ({reason})")),
                "{said}"
            );
            assert_eq!(environment.n_started(), 2, "{reason}: nothing was started");
            let said = run(&environment, &["reload", "--yes", "-o", "text"]).await;
            assert!(said.contains(&format!("Approved  t/{name} ({reason})")), "{said}");
        }
        endpoint.wait_for_line("Reloaded").await;
        environment.wait_for_one_of(&["s started", "new started", "other started"]).await;
        let status = run(&environment, &["status", "-o", "text"]).await;
        assert!(!status.contains("waiting"), "{status}");
    }
}

/// Sends a request to the local socket of the gateway.
async fn post_reload(environment: &TestEnvironment, endpoint: &Endpoint, body: &Value) -> Value {
    let socket = find_file(environment.folder(), &format!("{}.sock", endpoint.child.id().unwrap())).unwrap();
    let client = reqwest::Client::builder().unix_socket(socket).build().unwrap();
    let request = client.post("http://localhost/api/reload").header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await.unwrap();
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path());
    entries.find_map(|path| {
        if path.file_name().is_some_and(|file| file == name) { Some(path) } else { find_file(&path, name) }
    })
}

#[tokio::test]
async fn only_what_was_shown_is_approved() {
    for approval in ["signal", "digest"] {
        let environment = TestEnvironment::new();
        let server = environment.server("s", &["x"]);
        let (file, endpoint) = serving(&environment, &json!({"s": server})).await;
        let write = |name: &str| {
            let mut evil = environment.server("evil", &["y"]);
            evil["start"] = json!("eager");
            // The values look the same.
            evil["env"] = json!({"SAID_WHAT": name});
            rewrite(&file, &of(&json!({"s": server, "evil": evil})));
        };
        write("one");
        endpoint.wait_for_line("Approve").await;
        let digest = post_reload(&environment, &endpoint, &json!({})).await["digest"].clone();
        endpoint.wait_for_line("Approve").await;
        write("other");
        let approve = async |digest: &Value| {
            if approval == "signal" {
                signal(&endpoint.child, Signal::HUP);
            } else {
                post_reload(&environment, &endpoint, &json!({"approve": digest})).await;
            }
        };
        approve(&digest).await;
        let said = endpoint.wait_for_line("Approve").await;
        assert!(said.contains("Waiting  t/evil (new)"), "{approval}: {said}");
        assert_eq!(environment.n_started(), 1, "{approval}: nothing was started");
        let digest = post_reload(&environment, &endpoint, &json!({})).await["digest"].clone();
        endpoint.wait_for_line("Approve").await;
        approve(&digest).await;
        let said = endpoint.wait_for_line("Reloaded").await;
        assert!(said.contains("+ t/evil"), "{approval}: {said}");
        environment.wait_for_event("evil started").await;
    }
}

#[tokio::test]
async fn secrets_are_sent_to_no_other_origin_without_approval() {
    let environment = TestEnvironment::new();
    let elsewhere = Recorder::start([CannedResponse::json("{}")]).await;
    let hub = |url: &str, more: Value| {
        let mut hub = json!({"url": url, "start": "eager"});
        hub.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hub
    };
    let key = json!({"headers": {"X-Key": "k1"}});
    let before = "http://127.0.0.1:9/mcp";
    let after = elsewhere.url("/mcp");
    for (old, new, waits) in [
        (hub(before, key.clone()), hub(&after, key.clone()), Some("changed origin")),
        (hub(before, key.clone()), hub(&after, json!({})), None),
        (hub(before, key.clone()), hub("http://127.0.0.1:9/other", key.clone()), None),
        (hub(before, json!({})), hub(&format!("{after}?key=${{HOME}}"), json!({})), Some("changed origin")),
        (json!(null), hub(&after, key.clone()), Some("new")),
        (json!(null), hub(&after, json!({})), None),
    ] {
        let server = environment.server("s", &["x"]);
        let with = |hub: &Value| match hub {
            Value::Null => json!({"s": server}),
            hub => json!({"s": server, "hub": hub}),
        };
        let (file, endpoint) = serving(&environment, &with(&old)).await;
        rewrite(&file, &of(&with(&new)));
        let said = endpoint.wait_for_line(if waits.is_some() { "Approve" } else { "Reloaded" }).await;
        match waits {
            Some(reason) => assert!(said.contains(&format!("Waiting  t/hub ({reason})")), "{new}: {said}"),
            None => assert!(said.contains("t/hub"), "{new}: {said}"),
        }
    }
}

#[tokio::test]
async fn filters_and_access_of_project_files_wait_for_approval() {
    let environment = TestEnvironment::new();
    let mut configuration = of(&json!({"s": environment.server("s", &["x", "y"])}));
    configuration["toolboxes"]["t"]["mcpServers"]["s"]["toolsDenied"] = json!(["y"]);
    let file = environment.write("pegboard.json", &configuration.to_string());
    run(&environment, &["trust"]).await;
    let mut command = environment.command(PROGRAM);
    command.args(["serve", "--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    let (client, _) = endpoint.client(None, Era::Session).await;
    assert_eq!(names(&client, 1).await, ["s__x"]);
    configuration["toolboxes"]["t"]["mcpServers"]["s"]["toolsDenied"] = json!([]);
    configuration["transparent"] = json!(true);
    configuration["defaults"] = json!({"tracePayloads": true});
    rewrite(&file, &configuration);
    let said = endpoint.wait_for_line("Approve").await;
    assert!(said.contains("Waiting  t/s (changed tools): "), "{said}");
    assert!(said.contains("Waiting  access (new): tracePayloads true, transparent true"), "{said}");
    assert_eq!(names(&client, 1).await, ["s__x"]);
    let said = run(&environment, &["trust"]).await;
    assert!(said.contains("The running gateway still waits: run pegboard reload"), "{said}");
    run(&environment, &["reload"]).await;
    assert_eq!(names(&client, 2).await, ["x", "y"]);
}

#[tokio::test]
async fn a_change_that_is_taken_back_no_longer_waits() {
    let environment = TestEnvironment::new();
    let servers = json!({"s": environment.server("s", &["x"])});
    let (file, endpoint) = serving(&environment, &servers).await;
    let mut changed = servers.clone();
    changed["evil"] = json!({"command": "/bin/sh", "args": ["-c", "exit 1"], "start": "eager"});
    rewrite(&file, &of(&changed));
    insta::assert_snapshot!(plain(&endpoint.wait_for_line("Approve").await, &environment), @"
    Reloaded  /pegboard.json: no changes
    Waiting  t/evil (new): /bin/sh -c 'exit 1'
    Approve with pegboard reload
    ");
    insta::assert_snapshot!(run(&environment, &["status", "--json"]).await.split("\"pending\"").last().unwrap(), @r#"
    : [
        {
          "entry": "t/evil",
          "reason": "new",
          "action": "/bin/sh -c 'exit 1'",
          "file": "/pegboard.json"
        }
      ]
    }
    "#);
    rewrite(&file, &of(&servers));
    endpoint.wait_for_line("Reloaded").await;
    assert!(!run(&environment, &["status", "-o", "text"]).await.contains("waiting"));
    insta::assert_snapshot!(run(&environment, &["reload", "-o", "text"]).await, @"Reloaded  no changes");
}

#[tokio::test]
async fn what_the_user_adds_with_a_command_is_started() {
    let environment = TestEnvironment::new();
    let (_, endpoint) = serving(&environment, &json!({"s": environment.server("s", &["x"])})).await;
    let server = environment.server("mine", &["y"]);
    let mut arguments = vec!["--config", "pegboard.json", "add", "mine", "-b", "t", "--"];
    arguments.push(server["command"].as_str().unwrap());
    arguments.extend(server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()));
    let said = run(&environment, &arguments).await;
    assert!(said.contains("Added server mine"), "{said}");
    let said = endpoint.wait_for_line("Reloaded").await;
    assert!(said.contains("+ t/mine"), "{said}");
    environment.wait_for_event("mine started").await;
}

#[tokio::test]
async fn requests_of_project_files_wait_for_trust() {
    let environment = TestEnvironment::new();
    let service = Recorder::start([CannedResponse::json("{}")]).await;
    let file =
        environment.write("pegboard.json", &of(&json!({"s": environment.server("s", &["x"])})).to_string());
    run(&environment, &["trust"]).await;
    let mut command = environment.command(PROGRAM);
    command.args(["serve", "--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    let mut configuration = of(&json!({"s": environment.server("s", &["x"])}));
    let ask = json!({"description": "Asks", "method": "GET", "url": service.url("/"), "headers": {"X-Key": "${HOME}"}});
    configuration["toolboxes"]["t"]["restTools"] = json!({"ask": ask});
    configuration["toolboxes"]["t"]["mcpServers"]["hub"] = json!({"url": service.url("/mcp")});
    configuration["toolboxes"]["t"]["chains"] = json!({"c": {"steps": [{"tool": "s/x"}]}});
    rewrite(&file, &configuration);
    let said = endpoint.wait_for_line("Approve").await;
    assert!(said.contains("Waiting  t/ask (new): GET "), "{said}");
    assert!(said.contains("Waiting  t/hub (new): "), "{said}");
    assert!(said.contains("+ t/chain"), "chains use what is there: {said}");
    run(&environment, &["reload", "--yes"]).await;
    // The command asks for the changes, and then approves them.
    endpoint.wait_for_line("Reloaded").await;
    let said = endpoint.wait_for_line("Reloaded").await;
    assert!(said.contains("+ t/rest"), "{said}");
    let listed = run(&environment, &["trust", "--list"]).await;
    assert!(listed.contains("t/ask") && listed.contains("t/hub"), "an approval is remembered: {listed}");
}

#[tokio::test]
async fn a_reload_runs_no_new_command_for_a_secret() {
    let environment = TestEnvironment::new();
    let (known, new) = (environment.folder().join("known"), environment.folder().join("new"));
    let server = |command: &Path| {
        let header = format!("${{cmd:touch {}}}", command.display());
        json!({"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": header}})
    };
    std::fs::create_dir_all(environment.folder().join("config/pegboard")).unwrap();
    let servers = |extra: Value| {
        let mut servers = json!({"s": environment.server("s", &["x"]), "known": server(&known)});
        servers.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        of(&servers)
    };
    let file = environment.write("config/pegboard/pegboard.json", &servers(json!({})).to_string());
    let mut command = environment.command(PROGRAM);
    command.args(["serve", "--http", "127.0.0.1:0", "--profile", "flat", "--no-daemon"]);
    let endpoint = Endpoint::start(command).await;
    assert!(known.exists());
    std::fs::remove_file(&known).unwrap();

    rewrite(&file, &servers(json!({"new": server(&new)})));
    let said = plain(&endpoint.wait_for_line("Kept").await, &environment);
    assert!(said.contains("a reload does not run a new command for a secret: touch /new"), "{said}");
    assert!(said.contains("pegboard restart"), "{said}");
    signal(&endpoint.child, Signal::HUP);
    endpoint.wait_for_line("Kept").await;
    let refused = run(&environment, &["reload", "--yes"]).await;
    assert!(refused.contains("new command for a secret"), "{refused}");
    assert!(!new.exists(), "a reload ran it");

    // Commands that have run before run again.
    rewrite(&file, &servers(json!({"t": environment.server("t", &["y"])})));
    endpoint.wait_for_line("Reloaded").await;
    assert!(known.exists());

    // The user decides.
    rewrite(&file, &servers(json!({"new": server(&new)})));
    endpoint.wait_for_line("Kept").await;
    run(&environment, &["restart"]).await;
    endpoint.wait_for_line("Restarting").await;
    endpoint.wait_for_line("Ready").await;
    assert!(new.exists());
}

#[tokio::test]
async fn a_reload_needs_a_local_socket() {
    let environment = TestEnvironment::new();
    let (_, endpoint) = serving(&environment, &json!({"s": environment.server("s", &["x"])})).await;
    let url = format!("http://{}/api/reload", endpoint.address);
    let response =
        reqwest::Client::new().post(url).header("content-type", "application/json").body("{}").send();
    assert_eq!(response.await.unwrap().status(), 404);
    insta::assert_snapshot!(run(&TestEnvironment::new(), &["reload"]).await, @"
    error[not_running]: no gateway is running
      help: start one with `pegboard serve`
    ");
}
