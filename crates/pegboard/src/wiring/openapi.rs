//! Providers for web services with an OpenAPI document.

use std::sync::Arc;
use std::time::SystemTime;

use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::Provider;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::OpenApiProvider;

use super::reuse_cache::ReuseCache;

/// Services in use, by their inputs.
#[derive(Default)]
pub(super) struct OpenApiServices(ReuseCache<ServiceInputs, OpenApiProvider>);

/// Inputs of a service, including its place in the configuration: removing it there must not stop another.
#[derive(PartialEq)]
pub(super) struct ServiceInputs {
    place: (ToolboxName, ServerName),
    /// Settings without secrets, and a digest of the secrets.
    settings: (String, String),
    /// Modification time of the document, if it is a file.
    changed: Option<SystemTime>,
}

impl OpenApiServices {
    /// Returns the service, reused if it is in use already. A document in a file is read immediately, one at
    /// a URL on first use.
    pub(super) async fn service(
        &self,
        toolbox: &ToolboxName,
        name: &ServerName,
        settings: OpenApiSettings,
    ) -> Arc<dyn Provider> {
        let inputs = ServiceInputs {
            place: (toolbox.clone(), name.clone()),
            settings: (format!("{settings:?}"), settings.fingerprint()),
            changed: std::fs::metadata(&settings.spec).and_then(|file| file.modified()).ok(),
        };
        let service = self.0.get(inputs, |_| OpenApiProvider::new(settings, ""));
        if service.is_local()
            && let Err(error) = service.open().await
        {
            tracing::warn!("OpenAPI spec '{name}' cannot be used: {error}");
        }
        service
    }
}
