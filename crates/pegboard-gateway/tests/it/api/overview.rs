//! Status, toolboxes, servers, queues and metrics.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::provider::{ProcessInfo, TransportKind};
use pegboard_core::settings::QueueSettings;
use pegboard_gateway::api::{Api, ApiScope, GatewayInfo};
use pegboard_runtime::Runtime;
use pegboard_runtime::metrics::{Metrics, MetricsLimits};
use serde_json::{Value, json};

use super::api_server::{ApiServer, api, api_for};
use crate::fixture::LazyServer;

#[tokio::test]
async fn status_reports_identity_and_load() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, mut status_body) = server.get("/status").await;
    assert_eq!((status, status_body["pid"].take()), (200, json!(std::process::id())));
    assert!(status_body["startedAt"].take().as_u64().unwrap() > 0 && status_body["uptimeMs"].take().is_f64());
    insta::assert_snapshot!(status_body, @r#"{"version":"1.2.3","pid":null,"startedAt":null,"uptimeMs":null,"configuration":["/etc/pegboard.yaml"],"addresses":["http://127.0.0.1:7332/mcp"],"credential":{"kind":"none"},"calls":{"inFlight":0,"suspended":0},"callers":0,"servers":{"total":4,"ready":2,"starting":0,"idle":2,"failed":0},"tools":8,"startedBy":{"mode":"foreground"},"log":null,"clients":[],"pending":[]}"#);
}

#[tokio::test]
async fn toolboxes_are_listed_with_their_servers() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (_, toolboxes) = server.get("/toolboxes").await;
    insta::assert_snapshot!(toolboxes, @r#"{"toolboxes":[{"name":"dev","description":"For development","servers":["notes","idle","chain"],"tools":8,"chains":["report"]},{"name":"ops","description":"","servers":["broken"],"tools":0,"chains":[]}]}"#);
}

#[tokio::test]
async fn servers_report_their_state_and_can_be_started() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (_, servers) = server.get("/servers").await;
    insta::assert_snapshot!(servers, @r#"{"servers":[{"toolbox":"dev","server":"notes","kind":"mcp","state":"ready","tools":7},{"toolbox":"dev","server":"idle","kind":"mcp","state":"idle","tools":0},{"toolbox":"dev","server":"chain","kind":"chain","state":"ready","tools":1},{"toolbox":"ops","server":"broken","kind":"mcp","state":"idle","tools":0}]}"#);
    let (status, ready) = server.post("/servers/dev/idle/open", json!({})).await;
    assert_eq!(status, 200);
    insta::assert_snapshot!(ready, @r#"{"toolbox":"dev","server":"idle","kind":"mcp","state":"ready","tools":1}"#);
    let (status, broken) = server.post("/servers/ops/broken/open", json!({})).await;
    assert_eq!((status, &broken["error"]["message"]), (503, &json!("uvx: not found")));
}

#[tokio::test]
async fn servers_report_known_process_details() {
    let mut process = LazyServer::new([]);
    process.process_info = ProcessInfo {
        transport: Some(TransportKind::Stdio),
        pid: Some(4711),
        n_restarts: Some(2),
        started_in: Some(Duration::from_micros(120_500)),
        n_further_instances: Some(3),
    };
    let mut remote = LazyServer::new([]);
    remote.process_info = ProcessInfo {
        transport: Some(TransportKind::WebSocket),
        n_restarts: Some(0),
        ..ProcessInfo::default()
    };
    let toolbox = Runtime::builder().toolbox("dev", "");
    let runtime = toolbox.provide("program", process).provide("address", remote).start().await.unwrap();
    let server = ApiServer::start(&api_for(&runtime), ApiScope::All).await;
    let (_, servers) = server.get("/servers").await;
    insta::assert_snapshot!(servers, @r#"{"servers":[{"toolbox":"dev","server":"program","kind":"mcp","state":"idle","tools":0,"transport":"stdio","pid":4711,"restarts":2,"startedInMs":120.5,"furtherInstances":3},{"toolbox":"dev","server":"address","kind":"mcp","state":"idle","tools":0,"transport":"websocket","restarts":0}]}"#);
}

#[tokio::test]
async fn an_unknown_server_gets_suggestions() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for (path, code, hint) in [
        ("/servers/dve/notes/open", "unknown_toolbox", json!("did you mean dev?")),
        ("/servers/dev/note/open", "unknown_server", json!("did you mean notes?")),
        ("/servers/dev/zzzzzz/open", "unknown_server", Value::Null),
    ] {
        let (status, problem) = server.post(path, json!({})).await;
        assert_eq!(
            (status, &problem["error"]["code"], &problem["error"]["hint"]),
            (404, &json!(code), &hint)
        );
    }
}

#[tokio::test]
async fn queues_report_their_load() {
    let (_, runtime, _) = api().await;
    let settings = QueueSettings { max_concurrency: Some(2), ..QueueSettings::default() };
    runtime.configure_queues(&[("slow".to_owned(), settings)].into_iter().collect());
    let server = ApiServer::start(&api_for(&runtime), ApiScope::All).await;
    let (_, queues) = server.get("/queues").await;
    insta::assert_snapshot!(queues, @r#"{"queues":[{"name":"slow","running":0,"waiting":0,"maxConcurrency":2}]}"#);
}

#[tokio::test]
async fn metrics_are_in_prometheus_format() {
    let (api, _runtime, _) = api().await;
    let server =
        ApiServer::start(&api.metrics(Arc::new(Metrics::new(MetricsLimits::default()))), ApiScope::All).await;
    let (status, text) = server.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(text.as_str().unwrap().contains("pegboard_catalogue_tools 0\n"), "{text}");
}

#[tokio::test]
async fn without_a_runtime_only_history_is_served() {
    let server = ApiServer::start(&Api::new(GatewayInfo::default()), ApiScope::All).await;
    for path in
        ["/status", "/toolboxes", "/servers", "/tools", "/tool?name=x", "/calls", "/queues", "/metrics"]
    {
        let (status, problem) = server.get(path).await;
        assert_eq!((status, &problem["error"]["code"]), (503, &json!("not_running")), "{path}");
    }
    let (status, problem) = server.post("/calls", json!({"tool": "x"})).await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"not_running","message":"no gateway is running: only history is available","hint":"start one with `pegboard serve`"}}"#);
}
