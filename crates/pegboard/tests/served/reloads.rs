//! Reloads: no call fails, and clients are notified.

use std::path::PathBuf;

use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::{RawJson, ResponseEvent};
use pegboard_testkit::recorder::{CannedResponse, Recorder};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use crate::harness::{Endpoint, TEST_TIMEOUT, TestEnvironment, call, listed_once, rewrite, text};
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
        let said = plain(&endpoint.wait_for_line("Reloaded").await, &environment);
        insta::assert_snapshot!(said, @"Reloaded  /pegboard.json: + t/comes  - t/goes  ~ t/changes");
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
    error[config_invalid]: /pegboard.json: no such file. Check the path, or create it: {"mcpServers": {"files": {"command": "my-server"}}}
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
