//! Harness for REST tools.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_config::RestEntry;
use pegboard_config::settings::RestToolSettings;
use pegboard_core::call::{CallContext, SchemaChecks, ValidCall};
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice};
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ToolName;
use pegboard_core::provider::Provider;
use pegboard_core::settings::ToolSettings;
use pegboard_core::settings::rest::RestTool;
use pegboard_json::RawJson;
use pegboard_providers::rest;
use pegboard_testkit::recorder::{CannedResponse, RecordedRequest, Recorder};
use serde_json::{Value, json};

/// Tool and the service it calls.
pub(crate) struct RestHarness {
    pub(crate) service: Recorder,
    pub(crate) tool: Arc<ToolEntry>,
    pub(crate) progress: Arc<ProgressRecorder>,
}

impl RestHarness {
    /// Creates a tool at `path` of a service with these `replies`. Settings are merged into its entry.
    pub(crate) async fn new(
        path: &str,
        settings: Value,
        replies: impl IntoIterator<Item = CannedResponse>,
    ) -> Self {
        let service = Recorder::start(replies).await;
        let tool = tool(&service.url(path), &settings);
        Self { service, tool, progress: Arc::default() }
    }

    /// Calls the tool and returns its result or error text.
    pub(crate) async fn call(&self, arguments: Value) -> Result<String, String> {
        self.call_raw(&arguments.to_string()).await
    }

    /// Like [`call`](Self::call) with raw JSON arguments.
    pub(crate) async fn call_raw(&self, arguments: &str) -> Result<String, String> {
        let arguments = RawJson::parse(arguments.to_owned().into()).unwrap();
        let mut context = CallContext::default();
        context.client = Some(Arc::clone(&self.progress) as _);
        let call = ValidCall::admit(Arc::clone(&self.tool), arguments.into(), context, SchemaChecks::All);
        let output = call.map_err(|error| error.text())?.run().await.map_err(|error| error.text())?;
        if output.is_error() {
            Err(output.text().into_owned())
        } else {
            Ok(output.to_result().as_str().to_owned())
        }
    }

    /// Returns the only recorded request.
    pub(crate) fn request(&self) -> RecordedRequest {
        let mut recorded = self.service.recorded();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        recorded.remove(0)
    }
}

/// Creates a tool for a URL.
pub(crate) fn tool(url: &str, settings: &Value) -> Arc<ToolEntry> {
    let mut written = json!({"description": "A tool", "url": url});
    written.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let provider = rest::provider(vec![resolve("it", written)], Vec::new());
    let offer = Arc::clone(&provider.offering().borrow());
    assert_eq!(offer.warnings, Vec::<String>::new());
    Arc::clone(&offer.tools[0])
}

/// Resolves an entry. Its timeout is a setting of the calls.
pub(crate) fn resolve(name: &str, mut written: Value) -> RestTool {
    let timeout = written.as_object_mut().unwrap().remove("timeout");
    let timeout = timeout.map(|timeout| serde_json::from_value(timeout).unwrap());
    let settings = ToolSettings { timeout, ..ToolSettings::default() };
    let written: RestToolSettings = serde_json::from_value(written).unwrap();
    match written.resolve(ToolName::new(name).unwrap(), settings).unwrap() {
        RestEntry::Usable { request, .. } => *request,
        RestEntry::Unusable { .. } => unreachable!("it was resolved"),
    }
}

/// Creates a schema with these optional parameters of any type.
pub(crate) fn parameters(names: &[&str]) -> Value {
    let properties: serde_json::Map<_, _> = names.iter().map(|&name| (name.to_owned(), json!({}))).collect();
    json!({"type": "object", "properties": properties})
}

/// Client that records progress notifications.
#[derive(Default)]
pub(crate) struct ProgressRecorder(Mutex<Vec<String>>);

impl ProgressRecorder {
    /// Returns the messages so far.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Client for ProgressRecorder {
    fn notify(&self, notice: Notice) {
        if let Notice::Progress(progress) = notice {
            self.0.lock().unwrap().extend(progress.message);
        }
    }

    fn ask(&self, _questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        ready(Err(AskError::Unsupported)).boxed()
    }
}
