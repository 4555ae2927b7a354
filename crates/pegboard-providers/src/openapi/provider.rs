//! A web service as a provider of tools.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Offer, Provider, ServerState, ToolKind};
use pegboard_core::settings::openapi::OpenApiSettings;
use tokio::sync::watch;

use super::{Import, entries, import};

/// A web service whose operations are tools.
pub struct OpenApi {
    settings: OpenApiSettings,
    folder: PathBuf,
    offer: watch::Sender<Arc<Offer>>,
    state: watch::Sender<ServerState>,
}

impl OpenApi {
    /// A service that has not been looked at. A file is looked for from `folder`.
    pub fn new(settings: OpenApiSettings, folder: impl Into<PathBuf>) -> Self {
        Self {
            settings,
            folder: folder.into(),
            offer: watch::Sender::new(Arc::default()),
            state: watch::Sender::new(ServerState::Idle),
        }
    }

    /// Whether its document is a file, which is read in no time.
    pub fn is_file(&self) -> bool {
        !self.settings.spec.starts_with("http://") && !self.settings.spec.starts_with("https://")
    }

    async fn read(&self) -> Result<(), CallError> {
        if *self.state.borrow() == ServerState::Ready {
            return Ok(());
        }
        self.state.send_replace(ServerState::Starting);
        match import(&self.settings, &self.folder).await {
            Ok(import) => {
                self.offer.send_replace(Arc::new(self.offered(import)));
                self.state.send_replace(ServerState::Ready);
                Ok(())
            }
            Err(why) => {
                let fix = "Correct its document or its configuration, and use it again.".to_owned();
                self.state.send_replace(ServerState::Failed { why: why.clone(), fix });
                Err(CallError::ServerUnavailable { reason: why })
            }
        }
    }

    fn offered(&self, mut import: Import) -> Offer {
        let unusable = import.skipped.iter().filter(|skipped| !skipped.is_wanted);
        let mut warnings: Vec<String> =
            unusable.map(|skipped| format!("{} is no tool: {}", skipped.operation, skipped.reason)).collect();
        warnings.append(&mut import.warnings);
        Offer {
            warnings,
            fingerprint: format!("{}-{}", self.settings.fingerprint(), import.fingerprint),
            tools: entries(import),
            ..Offer::default()
        }
    }
}

impl Provider for OpenApi {
    fn kind(&self) -> ToolKind {
        ToolKind::Rest
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.read().boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        ready(()).boxed()
    }
}
