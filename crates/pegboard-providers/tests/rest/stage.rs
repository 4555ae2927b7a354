//! What all these tests need: a tool, and a service that it asks.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::{CallContext, Checks, ValidCall};
use pegboard_core::client::{Answers, AskError, Client, Notice, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ToolName;
use pegboard_core::provider::Provider;
use pegboard_core::settings::rest::RestToolEntry;
use pegboard_json::RawJson;
use pegboard_providers::rest;
use pegboard_testkit::recorder::{Recorded, Recorder, Reply};
use serde_json::{Value, json};

/// A tool and the service that it asks.
pub(crate) struct Stage {
    pub(crate) service: Recorder,
    pub(crate) tool: Arc<ToolEntry>,
    pub(crate) hearer: Arc<Hearer>,
}

impl Stage {
    /// A tool at `path` of a service that answers `replies`. The settings stand beside its description and address.
    pub(crate) async fn new(path: &str, settings: Value, replies: impl IntoIterator<Item = Reply>) -> Self {
        let service = Recorder::start(replies).await;
        let tool = tool(&service.url(path), &settings);
        Self { service, tool, hearer: Arc::default() }
    }

    /// Calls the tool, and gives the text of its answer, or why there is none.
    pub(crate) async fn call(&self, arguments: Value) -> Result<String, String> {
        self.call_raw(&arguments.to_string()).await
    }

    /// The same with arguments in the bytes they are sent in.
    pub(crate) async fn call_raw(&self, arguments: &str) -> Result<String, String> {
        let arguments = RawJson::parse(arguments.to_owned().into()).unwrap();
        let mut context = CallContext::default();
        context.client = Some(Arc::clone(&self.hearer) as _);
        let call = ValidCall::admit(Arc::clone(&self.tool), arguments.into(), context, Checks::All);
        let output = call.map_err(|error| error.text())?.run().await.map_err(|error| error.text())?;
        if output.is_error() {
            Err(output.text().into_owned())
        } else {
            Ok(output.to_result().as_str().to_owned())
        }
    }

    /// The one request that the service has seen.
    pub(crate) fn request(&self) -> Recorded {
        let mut recorded = self.service.recorded();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        recorded.remove(0)
    }
}

/// A tool at an address.
pub(crate) fn tool(url: &str, settings: &Value) -> Arc<ToolEntry> {
    let mut written = json!({"description": "A tool", "url": url});
    written.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let entry: RestToolEntry = serde_json::from_value(written).unwrap();
    let (tool, _) = entry.normalise(ToolName::new("it").unwrap()).unwrap();
    let provider = rest::provider(vec![tool], Vec::new());
    let offer = Arc::clone(&provider.offer().borrow());
    assert_eq!(offer.warnings, Vec::<String>::new());
    Arc::clone(&offer.tools[0])
}

/// A schema in which these parameters are texts, numbers or whatever they are, and none must be there.
pub(crate) fn parameters(names: &[&str]) -> Value {
    let properties: serde_json::Map<_, _> = names.iter().map(|&name| (name.to_owned(), json!({}))).collect();
    json!({"type": "object", "properties": properties})
}

/// A caller that writes down what it is told.
#[derive(Default)]
pub(crate) struct Hearer(Mutex<Vec<String>>);

impl Hearer {
    /// The messages of all progress so far.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Client for Hearer {
    fn notify(&self, notice: Notice) {
        if let Notice::Progress(progress) = notice {
            self.0.lock().unwrap().extend(progress.message);
        }
    }

    fn ask(&self, _questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        ready(Err(AskError::Nobody)).boxed()
    }
}
