//! What answers at an address that somebody names: an MCP server, or the description of a web service.

use std::path::Path;
use std::time::Duration;

use pegboard::config::Spec;
use pegboard::providers::openapi::import;
use pegboard::settings::openapi::OpenApiSettings;
use tokio::time;

/// How long a document is waited for. An MCP server may say nothing for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same source, unless it is an address and a description of a web service is there.
pub(crate) fn looked_at(spec: Spec) -> Spec {
    match spec {
        Spec::Url(url) if url.starts_with("http") && is_document(&url) => Spec::Document(url),
        other => other,
    }
}

fn is_document(url: &str) -> bool {
    // Whoever asks may be inside of an event loop, in which there cannot be another.
    std::thread::scope(|scope| scope.spawn(|| answers_document(url)).join().unwrap_or_default())
}

fn answers_document(url: &str) -> bool {
    let settings = OpenApiSettings { spec: url.to_owned(), ..OpenApiSettings::default() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return false;
    };
    let imported =
        runtime.block_on(async { time::timeout(PATIENCE, import(&settings, Path::new(""))).await });
    runtime.shutdown_background();
    matches!(imported, Ok(Ok(import)) if !import.tools.is_empty())
}
