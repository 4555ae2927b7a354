//! Web services with an OpenAPI document, put to use.

use std::sync::Arc;
use std::time::SystemTime;

use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::Provider;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::OpenApi;

use super::kept::Kept;

/// The services that are in use, each by all that it was made from.
#[derive(Default)]
pub(super) struct Services(Kept<Origin, OpenApi>);

/// What a service was made from, and where it stands: one that is taken out there must not end another.
#[derive(PartialEq)]
pub(super) struct Origin {
    place: (ToolboxName, ServerName),
    /// The settings without their secrets, and a digest of these.
    settings: (String, String),
    /// When the document was changed, if it is a file.
    changed: Option<SystemTime>,
}

impl Services {
    /// A service that goes on if it is in use already. Its document is read at once if it is a file, and when somebody
    /// uses it otherwise.
    pub(super) async fn service(
        &self,
        toolbox: &ToolboxName,
        name: &ServerName,
        settings: OpenApiSettings,
    ) -> Arc<dyn Provider> {
        let origin = Origin {
            place: (toolbox.clone(), name.clone()),
            settings: (format!("{settings:?}"), settings.fingerprint()),
            changed: std::fs::metadata(&settings.spec).and_then(|file| file.modified()).ok(),
        };
        let service = self.0.get(origin, |_| OpenApi::new(settings, ""));
        if service.is_file()
            && let Err(error) = service.open().await
        {
            tracing::warn!("OpenAPI spec '{name}' cannot be used: {error}");
        }
        service
    }
}
