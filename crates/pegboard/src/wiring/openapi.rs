//! Web services with an OpenAPI document, put to use.

use std::sync::Arc;

use pegboard_core::id::ServerName;
use pegboard_core::provider::Provider;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_providers::openapi::OpenApi;

/// A service whose document is read at once if it is a file, and when somebody uses it otherwise.
pub(super) async fn service(name: &ServerName, settings: OpenApiSettings) -> Arc<dyn Provider> {
    let service = OpenApi::new(settings, "");
    if service.is_file()
        && let Err(error) = service.open().await
    {
        tracing::warn!("OpenAPI spec '{name}' cannot be used: {error}");
    }
    Arc::new(service)
}
