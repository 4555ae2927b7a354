//! Web services that have an OpenAPI document: every operation becomes a tool.
//!
//! The document is 2.0 or 3.0 to 3.2, in JSON or YAML, in one file or several. An operation that cannot be a tool is
//! left out, with a reason; the rest is there.

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
mod library;
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

pub use library::Location;
pub use provider::OpenApi;

use crate::web::{Limits, Outgoing, Policy, Web};
use library::{Library, Part};
use operation::{Importer, Site};

/// Methods that become tools if nobody says otherwise, in this order; and those that only do if somebody does.
const METHODS: [&str; 9] = ["get", "post", "put", "patch", "delete", "query", "head", "options", "trace"];
const N_USUAL_METHODS: usize = 6;
/// How many operations of a document are looked at.
const MAX_OPERATIONS: usize = 10_000;
/// How many warnings are told.
const MAX_WARNINGS: usize = 100;
/// How a document is waited for.
const LIMITS: Limits = Limits {
    max_bytes: library::MAX_BYTES,
    begin: Duration::from_secs(20),
    idle: Duration::from_secs(10),
    total: Some(Duration::from_mins(1)),
};

/// What a document came to.
#[derive(Debug, Default)]
pub struct Import {
    /// What the service calls itself.
    pub title: String,
    /// The operations that are tools, in the order of the document.
    pub tools: Vec<Imported>,
    /// The operations that are not.
    pub skipped: Vec<Skipped>,
    /// What is worth knowing.
    pub warnings: Vec<String>,
    /// Tells the document from every other, with all that it refers to.
    pub fingerprint: String,
}

/// An operation that is a tool.
#[derive(Debug)]
pub struct Imported {
    /// Its method and path: `GET /items`.
    pub operation: String,
    /// The tool.
    pub entry: ToolEntry,
}

/// An operation that is no tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its method and path.
    pub operation: String,
    /// Why.
    pub reason: String,
    /// Whether somebody wants it so.
    #[serde(rename = "wanted")]
    pub is_wanted: bool,
}

/// Reads a document and makes tools of its operations. A file is looked for from `folder`.
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
pub async fn import(settings: &OpenApiSettings, folder: &Path) -> Result<Import, String> {
    let location = Location::of(&settings.spec, folder)?;
    let fetch = |url: Url| fetch(url).boxed();
    let library = Library::load(location, settings.references, &fetch).await?;
    let settings = settings.clone();
    // A large document takes longer than anybody else should wait.
    let work = tokio::task::spawn_blocking(move || read(&library, &settings));
    work.await.map_err(|error| format!("the document could not be read: {error}"))
}

/// What is at an address, as far as it may be a document.
async fn fetch(url: Url) -> Result<Vec<u8>, String> {
    let web = Web::new(Policy::new(url.clone())).map_err(|error| error.to_string())?;
    let mut outgoing = Outgoing::new(Method::GET, url);
    let accept = "application/openapi+json, application/json, application/yaml, text/yaml, */*;q=0.5";
    outgoing.set_header("accept", accept).map_err(|error| error.to_string())?;
    let answer = web.send(outgoing, LIMITS).await.map_err(|error| error.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("HTTP {}", answer.status.as_u16()));
    }
    Ok(answer.body.into())
}

/// Makes tools of the operations of a document.
fn read(library: &Library, settings: &OpenApiSettings) -> Import {
    let root = library.root();
    let paths = root.get("paths").filter(|paths| paths.value.is_object());
    let mut import = Import {
        fingerprint: library.fingerprint(),
        title: root.get("info").and_then(|info| info.text("title")).unwrap_or_default().to_owned(),
        ..Import::default()
    };
    let filter = Filter::of(settings);
    let mut importer = Importer::new(library, settings);
    let mut taken = HashSet::new();
    let mut n_operations = 0;
    for (path, item) in paths.into_iter().flat_map(Part::members).filter(|(path, _)| !path.starts_with("x-"))
    {
        let item = match library.follow(item) {
            Ok(item) => item,
            Err(reason) => {
                import.skipped.push(Skipped { operation: path.to_owned(), reason, is_wanted: false });
                continue;
            }
        };
        for (method, operation) in operations(item) {
            n_operations += 1;
            if n_operations > MAX_OPERATIONS {
                import.warnings.push(format!("only the first {MAX_OPERATIONS} operations are tools"));
                return finish(import, importer);
            }
            let site = Site { method, path, item, operation };
            let name = names::tool_name(site.id(), method, path);
            if let Some(reason) = filter.refuses(&site, &name) {
                import.skipped.push(Skipped { operation: site.label(), reason, is_wanted: true });
                continue;
            }
            let name = filter.renamed(&site, name);
            // A name is given for good, so that it does not change when another operation is repaired.
            let name = names::unique(&name, &mut taken);
            match importer.read(site, name) {
                Ok(entry) => import.tools.push(Imported { operation: site.label(), entry }),
                Err(reason) => {
                    import.skipped.push(Skipped { operation: site.label(), reason, is_wanted: false });
                }
            }
        }
    }
    finish(import, importer)
}

fn finish(mut import: Import, importer: Importer<'_>) -> Import {
    for (scheme, n_operations) in importer.security.missing {
        import.warnings.push(format!("{n_operations} operations need {scheme}; they are called without"));
    }
    let n_more = importer.warnings.len().saturating_sub(MAX_WARNINGS);
    import.warnings.extend(importer.warnings.into_iter().take(MAX_WARNINGS));
    if n_more > 0 {
        import.warnings.push(format!("and {n_more} more"));
    }
    import
}

/// The operations of a path, in the order of their methods.
fn operations(item: Part<'_>) -> impl Iterator<Item = (&str, Part<'_>)> {
    let usual = METHODS.into_iter().filter_map(move |method| Some((method, item.get(method)?)));
    let others = item.get("additionalOperations").into_iter().flat_map(Part::members);
    usual.chain(others).filter(|(_, operation)| operation.value.is_object())
}

/// Which operations are wanted, and under which names.
struct Filter<'s> {
    settings: &'s OpenApiSettings,
    methods: Vec<String>,
}

impl<'s> Filter<'s> {
    fn of(settings: &'s OpenApiSettings) -> Self {
        let usual = || METHODS[..N_USUAL_METHODS].iter().map(|method| (*method).to_owned()).collect();
        let lower =
            |methods: &Vec<String>| methods.iter().map(|method| method.to_ascii_lowercase()).collect();
        Self { settings, methods: settings.include_methods.as_ref().map_or_else(usual, lower) }
    }

    /// Why an operation is not wanted, if it is not.
    fn refuses(&self, site: &Site<'_>, name: &str) -> Option<String> {
        let is_on = |list: &[String]| {
            list.iter().any(|pattern| {
                names::matches(pattern, name) || site.id().is_some_and(|id| names::matches(pattern, id))
            })
        };
        let has_tag = |wanted: &[String]| {
            let tags = site.operation.get("tags").into_iter().flat_map(Part::items);
            let mut tags = tags.filter_map(|tag| tag.value.as_str());
            tags.any(|tag| wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(tag)))
        };
        let lists = |list: &'s Option<Vec<String>>| list.as_deref().filter(|list| !list.is_empty());
        if !self.methods.iter().any(|method| method == &site.method.to_ascii_lowercase()) {
            return Some("its method is not among includeMethods".to_owned());
        }
        if lists(&self.settings.tag_filter).is_some_and(|wanted| !has_tag(wanted)) {
            return Some("none of its tags is in tagFilter".to_owned());
        }
        if lists(&self.settings.include).is_some_and(|list| !is_on(list)) {
            return Some("it is not in include".to_owned());
        }
        lists(&self.settings.exclude).is_some_and(is_on).then(|| "it is in exclude".to_owned())
    }

    fn renamed(&self, site: &Site<'_>, name: String) -> String {
        let renamed =
            site.id().and_then(|id| self.settings.rename.get(id)).or_else(|| self.settings.rename.get(&name));
        renamed.map(|renamed| names::clean(renamed)).filter(|renamed| !renamed.is_empty()).unwrap_or(name)
    }
}

/// The tools of an import, to be offered.
fn entries(import: Import) -> Vec<Arc<ToolEntry>> {
    import.tools.into_iter().map(|tool| Arc::new(tool.entry)).collect()
}
