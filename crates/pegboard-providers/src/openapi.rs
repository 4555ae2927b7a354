//! OpenAPI services: every operation becomes a tool.
//!
//! Documents are 2.0 or 3.0 to 3.2, in JSON or YAML, in one file or several. An operation that cannot become
//! a tool is skipped with a reason; the others are imported.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use http::Method;
use pegboard_core::entry::ToolEntry;
use pegboard_core::settings::openapi::OpenApiSettings;
use reqwest::Url;
use serde::Serialize;

mod body;
mod document_set;
mod multipart;
mod names;
mod operation;
mod parameter;
mod provider;
mod request;
mod schema;
mod security;
mod server;
mod style;
mod token;
mod yaml;

pub use document_set::DocumentLocation;
pub use provider::OpenApiProvider;

use document_set::{DocumentNode, DocumentSet};
use operation::{OperationImporter, OperationNode};
use pegboard_http::{NetworkAccess, ResponseLimits, WebClient, WebPolicy, WebRequest};

/// HTTP methods in order: the default ones, then those that must be included explicitly.
const METHODS: [&str; 9] = ["get", "post", "put", "patch", "delete", "query", "head", "options", "trace"];
const N_DEFAULT_METHODS: usize = 6;
/// Maximum number of operations in a document.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum number of warnings.
const MAX_WARNINGS: usize = 100;
/// Limits for fetching a document.
const FETCH_LIMITS: ResponseLimits = ResponseLimits {
    max_bytes: document_set::MAX_BYTES,
    start_timeout: Duration::from_secs(20),
    idle_timeout: Duration::from_secs(10),
    total_timeout: Some(Duration::from_mins(1)),
};

/// Result of importing a document.
#[derive(Debug, Default)]
pub struct OpenApiImport {
    /// Title of the service.
    pub title: String,
    /// Imported operations, in document order.
    pub tools: Vec<ImportedTool>,
    /// Skipped operations.
    pub skipped: Vec<SkippedOperation>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Identifies the documents, including referenced ones.
    pub fingerprint: String,
}

/// Operation imported as a tool.
#[derive(Debug)]
pub struct ImportedTool {
    /// Method and path: `GET /items`.
    pub operation: String,
    /// The tool.
    pub entry: ToolEntry,
}

/// Operation that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedOperation {
    /// Method and path.
    pub operation: String,
    /// Reason.
    pub reason: String,
    /// `true` if the configuration excludes it.
    #[serde(rename = "excluded")]
    pub is_excluded: bool,
}

/// Imports a document. A file path is relative to `folder`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::settings::openapi::OpenApiSettings;
///
/// # let folder = tempfile::tempdir().unwrap();
/// std::fs::write(folder.path().join("catalog.yaml"), "
/// openapi: 3.1.0
/// info: {title: Catalog, version: '1'}
/// servers: [{url: 'https://catalog.example.org/v1'}]
/// paths:
///   /items:
///     get: {operationId: listItems, summary: All items}
/// ").unwrap();
/// let settings = OpenApiSettings { spec: "catalog.yaml".to_owned(), ..OpenApiSettings::default() };
/// let import = pegboard_providers::openapi::import(&settings, folder.path()).await.unwrap();
/// assert_eq!(import.tools[0].entry.name(), "listItems");
/// # });
/// ```
pub async fn import(settings: &OpenApiSettings, folder: &Path) -> Result<OpenApiImport, String> {
    let location = DocumentLocation::parse(&settings.spec, folder)?;
    let configured = match &location {
        DocumentLocation::Remote(url) => Some(url.origin()),
        DocumentLocation::File(_) => None,
    };
    let fetch = |url: Url| {
        let is_configured = configured.as_ref() == Some(&url.origin());
        let network = if is_configured { NetworkAccess::ByName } else { NetworkAccess::Public };
        fetch(url, network).boxed()
    };
    let documents = DocumentSet::load(location, settings.references, &fetch).await?;
    let settings = settings.clone();
    // Large documents take too long for an async task.
    let work = tokio::task::spawn_blocking(move || read(&documents, &settings));
    work.await.map_err(|error| format!("cannot read the document: {error}"))
}

/// Fetches a document.
async fn fetch(url: Url, network: NetworkAccess) -> Result<Vec<u8>, String> {
    let policy = WebPolicy { network, ..WebPolicy::new(url.clone()) };
    let web = WebClient::new(policy).map_err(|error| error.to_string())?;
    let mut request = WebRequest::new(Method::GET, url);
    let accept = "application/openapi+json, application/json, application/yaml, text/yaml, */*;q=0.5";
    request.set_header("accept", accept).map_err(|error| error.to_string())?;
    let answer = web.send(request, FETCH_LIMITS).await.map_err(|error| error.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("HTTP {}", answer.status.as_u16()));
    }
    Ok(answer.body.into())
}

/// Imports the operations of a document.
fn read(documents: &DocumentSet, settings: &OpenApiSettings) -> OpenApiImport {
    let root = documents.root();
    let paths = root.get("paths").filter(|paths| paths.value.is_object());
    let mut import = OpenApiImport {
        fingerprint: documents.fingerprint(),
        title: root.get("info").and_then(|info| info.text("title")).unwrap_or_default().to_owned(),
        ..OpenApiImport::default()
    };
    let filter = OperationFilter::of(settings);
    let mut importer = OperationImporter::new(documents, settings);
    let mut taken = HashSet::new();
    let mut n_operations = 0;
    for (path, item) in
        paths.into_iter().flat_map(DocumentNode::members).filter(|(path, _)| !path.starts_with("x-"))
    {
        let item = match documents.follow(item) {
            Ok(item) => item,
            Err(reason) => {
                import.skipped.push(SkippedOperation {
                    operation: path.to_owned(),
                    reason,
                    is_excluded: false,
                });
                continue;
            }
        };
        for (method, operation) in operations(item) {
            n_operations += 1;
            if n_operations > MAX_OPERATIONS {
                import.warnings.push(format!("imported only the first {MAX_OPERATIONS} operations"));
                return finish(import, importer);
            }
            let node = OperationNode { method, path, item, operation };
            let name = names::tool_name(node.id(), method, path);
            if let Some(reason) = filter.exclusion_reason(&node, &name) {
                import.skipped.push(SkippedOperation { operation: node.label(), reason, is_excluded: true });
                continue;
            }
            let name = filter.renamed(&node, name);
            // Names are assigned once, so that they stay stable if another operation is fixed.
            let name = names::unique(&name, &mut taken);
            match importer.read(node, name) {
                Ok(entry) => import.tools.push(ImportedTool { operation: node.label(), entry }),
                Err(reason) => {
                    import.skipped.push(SkippedOperation {
                        operation: node.label(),
                        reason,
                        is_excluded: false,
                    });
                }
            }
        }
    }
    finish(import, importer)
}

fn finish(mut import: OpenApiImport, importer: OperationImporter<'_>) -> OpenApiImport {
    for (scheme, n_operations) in importer.security.missing {
        import.warnings.push(format!("{n_operations} operations are called without credentials: {scheme}"));
    }
    let n_more = importer.warnings.len().saturating_sub(MAX_WARNINGS);
    import.warnings.extend(importer.warnings.into_iter().take(MAX_WARNINGS));
    if n_more > 0 {
        import.warnings.push(format!("and {n_more} more"));
    }
    import
}

/// Returns the operations of a path, ordered by method.
fn operations(item: DocumentNode<'_>) -> impl Iterator<Item = (&str, DocumentNode<'_>)> {
    let usual = METHODS.into_iter().filter_map(move |method| Some((method, item.get(method)?)));
    let others = item.get("additionalOperations").into_iter().flat_map(DocumentNode::members);
    usual.chain(others).filter(|(_, operation)| operation.value.is_object())
}

/// Selection and renaming of operations, as configured.
struct OperationFilter<'s> {
    settings: &'s OpenApiSettings,
    methods: Vec<String>,
}

impl<'s> OperationFilter<'s> {
    fn of(settings: &'s OpenApiSettings) -> Self {
        let usual = || METHODS[..N_DEFAULT_METHODS].iter().map(|method| (*method).to_owned()).collect();
        let lower =
            |methods: &Vec<String>| methods.iter().map(|method| method.to_ascii_lowercase()).collect();
        Self { settings, methods: settings.include_methods.as_ref().map_or_else(usual, lower) }
    }

    /// Returns the reason why an operation is excluded.
    fn exclusion_reason(&self, node: &OperationNode<'_>, name: &str) -> Option<String> {
        let is_on = |list: &[String]| {
            list.iter().any(|pattern| {
                names::matches(pattern, name) || node.id().is_some_and(|id| names::matches(pattern, id))
            })
        };
        let has_tag = |wanted: &[String]| {
            let tags = node.operation.get("tags").into_iter().flat_map(DocumentNode::items);
            let mut tags = tags.filter_map(|tag| tag.value.as_str());
            tags.any(|tag| wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(tag)))
        };
        let lists = |list: &'s Option<Vec<String>>| list.as_deref().filter(|list| !list.is_empty());
        if !self.methods.iter().any(|method| method == &node.method.to_ascii_lowercase()) {
            return Some("its method is not in includeMethods".to_owned());
        }
        if lists(&self.settings.tag_filter).is_some_and(|wanted| !has_tag(wanted)) {
            return Some("none of its tags is in tagFilter".to_owned());
        }
        if lists(&self.settings.include).is_some_and(|list| !is_on(list)) {
            return Some("it does not match include".to_owned());
        }
        lists(&self.settings.exclude).is_some_and(is_on).then(|| "it matches exclude".to_owned())
    }

    fn renamed(&self, node: &OperationNode<'_>, name: String) -> String {
        let renamed =
            node.id().and_then(|id| self.settings.rename.get(id)).or_else(|| self.settings.rename.get(&name));
        renamed.map(|renamed| names::sanitize(renamed)).filter(|renamed| !renamed.is_empty()).unwrap_or(name)
    }
}

/// Returns the tools of an import.
fn entries(import: OpenApiImport) -> Vec<Arc<ToolEntry>> {
    import.tools.into_iter().map(|tool| Arc::new(tool.entry)).collect()
}
