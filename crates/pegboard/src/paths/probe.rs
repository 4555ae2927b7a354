//! Detects whether a URL is an MCP server or an OpenAPI document.

use std::path::Path;
use std::time::Duration;

use pegboard::config::SourceSpec;
use pegboard::providers::openapi::import;
use pegboard::settings::openapi::OpenApiSettings;
use tokio::time;

/// Timeout for the document. An MCP server may never answer the request.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Turns a URL into a document source if an OpenAPI document is found there.
pub(crate) fn probe(spec: SourceSpec) -> SourceSpec {
    match spec {
        SourceSpec::Url(url) if url.starts_with("http") && wants_document(&url) => SourceSpec::Document(url),
        other => other,
    }
}

fn wants_document(url: &str) -> bool {
    // The caller may be inside an event loop, which cannot be nested.
    std::thread::scope(|scope| scope.spawn(|| answers_document(url)).join().unwrap_or_default())
}

fn answers_document(url: &str) -> bool {
    let settings = OpenApiSettings { spec: url.to_owned(), ..OpenApiSettings::default() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return false;
    };
    let imported =
        runtime.block_on(async { time::timeout(PROBE_TIMEOUT, import(&settings, Path::new(""))).await });
    runtime.shutdown_background();
    matches!(imported, Ok(Ok(import)) if !import.tools.is_empty())
}
