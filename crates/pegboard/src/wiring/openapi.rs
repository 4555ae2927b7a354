//! Web services with an OpenAPI document, put to use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use pegboard_core::id::ServerName;
use pegboard_core::provider::{Provider, ServerState};
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::OpenApi;

/// The services that are in use, each by all that it was made from.
#[derive(Default)]
pub(super) struct Services(Mutex<HashMap<Origin, Weak<OpenApi>>>);

/// What a service was made from: two with the same origin are one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Origin {
    /// The settings without their secrets, and a digest of these.
    settings: (String, String),
    /// When the document was changed, if it is a file.
    changed: Option<SystemTime>,
}

impl Services {
    /// A service that goes on if it is in use already. Its document is read at once if it is a file, and when somebody
    /// uses it otherwise.
    pub(super) async fn service(&self, name: &ServerName, settings: OpenApiSettings) -> Arc<dyn Provider> {
        let changed = std::fs::metadata(&settings.spec).and_then(|file| file.modified()).ok();
        let origin = Origin { settings: (format!("{settings:?}"), settings.fingerprint()), changed };
        let is_here = |service: &Arc<OpenApi>| *service.state().borrow() != ServerState::Stopped;
        if let Some(service) = self.known().get(&origin).and_then(Weak::upgrade).filter(is_here) {
            return service;
        }
        let service = Arc::new(OpenApi::new(settings, ""));
        if service.is_file()
            && let Err(error) = service.open().await
        {
            tracing::warn!("OpenAPI spec '{name}' cannot be used: {error}");
        }
        let mut known = self.known();
        known.retain(|_, service| service.strong_count() > 0);
        known.insert(origin, Arc::downgrade(&service));
        drop(known);
        service
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Origin, Weak<OpenApi>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
