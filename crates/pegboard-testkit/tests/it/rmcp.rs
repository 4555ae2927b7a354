//! The official Rust SDK's client against the fixture, in both eras, over a pipe and over HTTP.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use pegboard_testkit::fixture::Fixture;
use pegboard_testkit::serve;
use pegboard_wire::http::server::HttpServerOptions;
use pegboard_wire::server::ServiceServer;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, Implementation, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;

#[tokio::test]
async fn rmcp_works_over_a_pipe_with_a_session() {
    check(pipe(), with_session(), "2025-11-25").await;
}

#[tokio::test]
async fn rmcp_works_over_a_pipe_without_a_session() {
    check(pipe(), auto_negotiation(), "2026-07-28").await;
}

#[tokio::test]
async fn rmcp_works_over_http_with_a_session() {
    check(http().await, with_session(), "2025-11-25").await;
}

#[tokio::test]
async fn rmcp_works_over_http_without_a_session() {
    check(http().await, auto_negotiation(), "2026-07-28").await;
}

async fn check<T, E, A>(transport: T, lifecycle: ClientLifecycleMode, revision: &str)
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let client = AcceptingClient::default().serve_with_lifecycle(transport, lifecycle).await.unwrap();
    assert_eq!(client.peer_info().unwrap().protocol_version.as_str(), revision);

    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "test_simple_text"), "{tools:?}");
    assert_eq!(call(&client, "test_simple_text").await, "This is a simple text response for testing.");
    assert_eq!(call(&client, "test_tool_with_progress").await, "Progress was made.");
    assert_eq!(
        call(&client, "test_elicitation").await,
        r#"User response: action: accept, content: {"username":"ada"}"#,
    );

    let read = client.read_resource(ReadResourceRequestParams::new("test://static-text")).await.unwrap();
    let contents = serde_json::to_value(&read.contents).unwrap();
    assert_eq!(contents[0]["text"], "This is the content of the static text resource.");
    let refusal = client.read_resource(ReadResourceRequestParams::new("test://nowhere")).await.unwrap_err();
    assert!(refusal.to_string().contains("Resource not found"), "{refusal}");

    let progress = client.service().progress.lock().unwrap().clone();
    assert_eq!(progress, [0.0, 50.0, 100.0]);
    client.cancel().await.unwrap();
}

/// Calls a tool and returns the text of its result.
async fn call(client: &RunningService<RoleClient, AcceptingClient>, tool: &'static str) -> String {
    let arguments = json!({"message": "Who is there?"}).as_object().unwrap().clone();
    let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await.unwrap();
    result.content[0].as_text().unwrap().text.clone()
}

fn with_session() -> ClientLifecycleMode {
    ClientLifecycleMode::Initialize
}

/// Negotiates the era automatically.
fn auto_negotiation() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// Returns the client's end of a pipe to a fixture.
fn pipe() -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (transport, _) = line_transport(reader, writer, InputLimits::server());
    let server = ServiceServer::new(Arc::new(Fixture::new()));
    tokio::spawn(async move { server.serve(transport).await });
    near
}

/// Returns the SDK's transport to a fixture behind HTTP.
async fn http() -> StreamableHttpClientTransport<reqwest::Client> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app =
        serve::all_transports(&ServiceServer::new(Arc::new(Fixture::new())), &HttpServerOptions::default());
    tokio::spawn(async move { axum::serve(listener, app).await });
    StreamableHttpClientTransport::from_uri(format!("http://{address}/mcp"))
}

/// A client that accepts every elicitation and records progress.
#[derive(Default)]
struct AcceptingClient {
    progress: Mutex<Vec<f64>>,
}

impl ClientHandler for AcceptingClient {
    fn get_info(&self) -> ClientConfig {
        let capabilities: ClientCapabilities = serde_json::from_value(json!({"elicitation": {}})).unwrap();
        ClientConfig::new(capabilities, Implementation::new("rmcp", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"username": "ada"})))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().unwrap().push(params.progress);
    }
}
