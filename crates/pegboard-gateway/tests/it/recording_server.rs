//! A provider that records the requests it gets, for tests of prompts, resources and subscriptions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::CallContext;
use pegboard_core::error::CallError;
use pegboard_core::provider::{
    LocalProvider, Provider, ProviderRequest, ProviderUpdate, ServerOffering, ServerState, ToolKind,
};
use pegboard_json::RawJson;
use tokio::sync::{broadcast, watch};

/// Answer of a server to a request.
type Respond = dyn Fn(&ProviderRequest) -> Result<RawJson, CallError> + Send + Sync;

/// A server that records its requests.
#[derive(Clone)]
pub(crate) struct RecordingServer {
    pub(crate) local: Arc<LocalProvider>,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    /// Number of requests on behalf of clients with sessions.
    pub(crate) n_of_sessions: Arc<AtomicUsize>,
    pub(crate) updates: broadcast::Sender<ProviderUpdate>,
    respond: Arc<Respond>,
}

impl RecordingServer {
    /// Creates a server that answers requests with `respond`.
    pub(crate) fn new(
        offer: ServerOffering,
        respond: impl Fn(&ProviderRequest) -> Result<RawJson, CallError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            local: Arc::new(LocalProvider::from_offering(offer).of_kind(ToolKind::Mcp)),
            requests: Arc::default(),
            n_of_sessions: Arc::default(),
            updates: broadcast::Sender::new(64),
            respond: Arc::new(respond),
        }
    }

    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

impl Provider for RecordingServer {
    fn kind(&self) -> ToolKind {
        self.local.kind()
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.local.offering()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.local.state()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.local.open()
    }

    fn request<'a>(
        &'a self,
        request: &'a ProviderRequest,
        context: &'a CallContext,
    ) -> BoxFuture<'a, Result<RawJson, CallError>> {
        let line = format!("{} {}", request.method.as_str(), request.params.as_str());
        self.requests.lock().unwrap().push(line);
        self.n_of_sessions.fetch_add(usize::from(context.client().has_session()), Ordering::SeqCst);
        ready((self.respond)(request)).boxed()
    }

    fn updates(&self) -> broadcast::Receiver<ProviderUpdate> {
        self.updates.subscribe()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.local.shut_down()
    }
}
