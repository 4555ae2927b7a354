//! Service that records requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{CallContext, SchemaChecks, ValidCall};
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::{OpenApiImport, import};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// Recorded request.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    /// Method, path and query: `GET /items?a=1`.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl SeenRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Answers: status, location of a redirect, body.
type Answers = Arc<Mutex<VecDeque<(u16, Option<String>, String)>>>;

/// Service, and the folder of its documents.
pub(crate) struct Service {
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    answers: Answers,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<SeenRequest>>> = Arc::default();
        let answers: Answers = Arc::default();
        let (log, next) = (Arc::clone(&seen), Arc::clone(&answers));
        let router = Router::new().fallback(move |request: Request| {
            let (log, next) = (Arc::clone(&log), Arc::clone(&next));
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
                let text =
                    |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let headers =
                    parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
                log.lock().unwrap().push(SeenRequest {
                    line: format!("{} {}", parts.method, parts.uri),
                    headers,
                    body,
                });
                let (status, location, text) =
                    next.lock().unwrap().pop_front().unwrap_or((200, None, r#"{"ok":true}"#.to_owned()));
                let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
                if let Some(location) = location {
                    response = response.header("location", location);
                }
                response.header("content-type", "application/json").body(text).unwrap()
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, folder: tempfile::tempdir().unwrap(), seen, answers }
    }

    /// Sets the next response, instead of `{"ok":true}`.
    pub(crate) fn answer_next(&self, status: u16, body: impl Into<String>) {
        self.answers.lock().unwrap().push_back((status, None, body.into()));
    }

    /// Redirects the next request.
    pub(crate) fn redirect_next(&self, location: &str) {
        self.answers.lock().unwrap().push_back((307, Some(location.to_owned()), String::new()));
    }

    /// Takes the requests recorded since the last call.
    pub(crate) fn take_requests(&self) -> Vec<SeenRequest> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Imports a document with these settings. A file gets the URL of the service, since a document cannot name a
    /// host on this machine.
    pub(crate) async fn try_import(
        &self,
        document: &Value,
        settings: Value,
    ) -> Result<OpenApiImport, String> {
        self.write("spec.json", &document.to_string());
        let mut settings: OpenApiSettings = serde_json::from_value(settings).unwrap();
        if settings.spec.is_empty() {
            "spec.json".clone_into(&mut settings.spec);
        }
        if !settings.spec.starts_with("http") {
            settings.base_url.get_or_insert_with(|| format!("{}/v1", self.url));
        }
        import(&settings, self.folder.path()).await
    }

    pub(crate) async fn import(&self, document: &Value, settings: Value) -> OpenApiImport {
        self.try_import(document, settings).await.unwrap()
    }

    /// Calls the only operation of a document and returns the request. The schema must accept the arguments.
    pub(crate) async fn sent_request(&self, document: &Value, arguments: Value) -> SeenRequest {
        let import = self.import(document, json!({})).await;
        assert_eq!(import.skipped, []);
        call(&import, 0, arguments).await.unwrap();
        self.take_requests().pop().unwrap()
    }

    /// Creates a 3.1 document of this service with one operation at `path`.
    pub(crate) fn document(&self, method: &str, path: &str, operation: &Value) -> Value {
        json!({
            "openapi": "3.1.0",
            "info": {"title": "T", "version": "1"},
            "servers": [{"url": format!("{}/v1", self.url)}],
            "paths": {path: {method: operation}},
        })
    }
}

/// Calls the tool at this index.
pub(crate) async fn call(import: &OpenApiImport, at: usize, arguments: Value) -> Result<Output, CallError> {
    let entry = Arc::new(import.tools[at].entry.clone());
    assert_eq!(entry.input_schema().problem(), None, "{}", entry.input_schema().as_json());
    ValidCall::admit(entry, CallArguments::from(arguments), CallContext::default(), SchemaChecks::All)?
        .run()
        .await
}

/// Returns the names of the tools.
pub(crate) fn names(import: &OpenApiImport) -> Vec<&str> {
    import.tools.iter().map(|tool| tool.entry.name()).collect()
}
