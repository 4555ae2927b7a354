//! Provider of the tools of an OpenAPI service.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::error::CallError;
use pegboard_core::provider::{Provider, ServerOffering, ServerState, ToolKind};
use pegboard_core::settings::openapi::OpenApiSettings;
use tokio::sync::watch;

use super::{OpenApiImport, entries, import};

/// OpenAPI service with operations as tools.
pub struct OpenApiProvider {
    settings: OpenApiSettings,
    folder: PathBuf,
    offering: watch::Sender<Arc<ServerOffering>>,
    state: watch::Sender<ServerState>,
}

impl OpenApiProvider {
    /// Creates a provider that has not been loaded. A file path is relative to `folder`.
    pub fn new(settings: OpenApiSettings, folder: impl Into<PathBuf>) -> Self {
        Self {
            settings,
            folder: folder.into(),
            offering: watch::Sender::new(Arc::default()),
            state: watch::Sender::new(ServerState::Idle),
        }
    }

    /// Returns `true` if the document is a local file, which loads fast.
    pub fn is_local(&self) -> bool {
        !self.settings.spec.starts_with("http://") && !self.settings.spec.starts_with("https://")
    }

    async fn load(&self) -> Result<(), CallError> {
        if *self.state.borrow() == ServerState::Ready {
            return Ok(());
        }
        self.state.send_replace(ServerState::Starting);
        match import(&self.settings, &self.folder).await {
            Ok(import) => {
                self.offering.send_replace(Arc::new(self.to_offering(import)));
                self.state.send_replace(ServerState::Ready);
                Ok(())
            }
            Err(why) => {
                let fix = "Fix the document or the configuration, then try again.".to_owned();
                self.state.send_replace(ServerState::failed(why.clone(), fix));
                Err(CallError::ServerUnavailable { reason: why })
            }
        }
    }

    fn to_offering(&self, mut import: OpenApiImport) -> ServerOffering {
        let unusable = import.skipped.iter().filter(|skipped| !skipped.is_excluded);
        let mut warnings: Vec<String> =
            unusable.map(|skipped| format!("skipped {}: {}", skipped.operation, skipped.reason)).collect();
        warnings.append(&mut import.warnings);
        ServerOffering {
            warnings,
            fingerprint: format!("{}-{}", self.settings.fingerprint(), import.fingerprint),
            tools: entries(import),
            ..ServerOffering::default()
        }
    }
}

impl Provider for OpenApiProvider {
    fn kind(&self) -> ToolKind {
        ToolKind::Rest
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.offering.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.load().boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        ready(()).boxed()
    }
}
