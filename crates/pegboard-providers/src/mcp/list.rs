//! The tools of a server, as it lists them.

use std::collections::HashSet;
use std::sync::Arc;

use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::handler::Handler;
use pegboard_core::id::ToolName;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::{Failure, code};
use serde_json::{Value, json};

/// How many pages are read.
const MAX_PAGES: usize = 1_000;
/// How many tools a server may have.
const MAX_TOOLS: usize = 20_000;
/// How long all definitions together may be.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How long a cursor may be.
const MAX_CURSOR_BYTES: usize = 8 * 1024;
/// How many entries are named that were left out.
const MAX_WARNINGS: usize = 100;
/// How much of a name is told.
const MAX_NAME_BYTES: usize = 80;
/// How much of a warning of the wire is told.
const MAX_WARNING_BYTES: usize = 300;

/// What a server lists.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) tools: Vec<Arc<ToolEntry>>,
    /// What was left out, and why.
    pub(super) warnings: Vec<String>,
}

/// Reads the whole list of tools, page by page.
pub(super) async fn read(client: &Client, handler: &Arc<dyn Handler>) -> Result<Listed, Failure> {
    let mut reader = Reader::new(Arc::clone(handler));
    let mut seen = HashSet::new();
    let mut params = None;
    for _ in 0..MAX_PAGES {
        let page = match ask(client, params).await {
            Err(Failure::Refused(error)) if error.code == code::METHOD_NOT_FOUND => {
                if client.server().capabilities.get("tools").is_some() {
                    reader.warn("the server says that it has tools, and does not list them".to_owned());
                }
                return Ok(reader.finish());
            }
            page => page?,
        };
        reader.take(client, &page);
        let Some(cursor) = next_cursor(&page) else { return Ok(reader.finish()) };
        if reader.is_full {
            return Ok(reader.finish());
        }
        if cursor.as_bytes().len() > MAX_CURSOR_BYTES || !seen.insert(cursor.clone()) {
            reader.warn("the pages of the list lead in a circle; the rest is left out".to_owned());
            return Ok(reader.finish());
        }
        params = Some(RawJson::empty_object().with("cursor", &cursor));
    }
    reader.warn(format!("the list has more than {MAX_PAGES} pages; the rest is left out"));
    Ok(reader.finish())
}

/// Asks for one page.
pub(super) async fn ask(client: &Client, params: Option<RawJson>) -> Result<RawJson, Failure> {
    client.request("tools/list", params, RequestOptions::default()).await?.answer().await
}

/// Where the list goes on. An empty cursor is none: some servers say so.
fn next_cursor(page: &RawJson) -> Option<RawJson> {
    page.get("nextCursor").filter(|cursor| cursor.text().is_some_and(|text| !text.is_empty()))
}

struct Reader {
    handler: Arc<dyn Handler>,
    listed: Listed,
    names: HashSet<String>,
    n_read: usize,
    n_bytes: usize,
    n_warnings: usize,
    is_full: bool,
}

impl Reader {
    fn new(handler: Arc<dyn Handler>) -> Self {
        Self {
            handler,
            listed: Listed::default(),
            names: HashSet::new(),
            n_read: 0,
            n_bytes: 0,
            n_warnings: 0,
            is_full: false,
        }
    }

    fn take(&mut self, client: &Client, page: &RawJson) {
        let tools = match client.era() {
            // Only there can a tool ask for headers, and ask for what cannot be.
            Era::Stateless => {
                let (good, refused) = client.take_tools(page);
                for problem in refused {
                    self.warn(clipped(&problem, MAX_WARNING_BYTES).into_owned());
                }
                good
            }
            Era::Session => page.get("tools").map(|tools| tools.items().collect()).unwrap_or_default(),
        };
        for tool in tools {
            self.n_read += 1;
            self.n_bytes += tool.as_bytes().len();
            if self.listed.tools.len() >= MAX_TOOLS || self.n_bytes > MAX_BYTES {
                self.is_full = true;
                self.warn(format!(
                    "the server lists more than {MAX_TOOLS} tools or {} MiB; the rest is left out",
                    MAX_BYTES / (1024 * 1024)
                ));
                return;
            }
            match self.entry(&tool) {
                Ok(entry) => self.listed.tools.push(Arc::new(entry)),
                Err(problem) => {
                    let name = tool.get("name");
                    let name = name.as_ref().and_then(RawJson::text).filter(|name| !name.is_empty());
                    let which = match name {
                        Some(name) => format!("tool {:?}", clipped(&name, MAX_NAME_BYTES)),
                        None => format!("entry {} of the list", self.n_read),
                    };
                    self.warn(format!("{which} is left out: {problem}"));
                }
            }
        }
    }

    fn entry(&mut self, tool: &RawJson) -> Result<ToolEntry, String> {
        let text = |name: &str| tool.get(name).and_then(|text| text.read::<String>().ok());
        let name = text("name").ok_or("it has no name, or one that is no text")?;
        let name = ToolName::new(name).map_err(|error| error.to_string())?;
        let input = schema(tool, "inputSchema")?.or(schema(tool, "parameters")?);
        let output = schema(tool, "outputSchema")?;
        if !self.names.insert(name.as_str().to_owned()) {
            return Err("one of this name comes before it".to_owned());
        }
        let annotations = tool.get("annotations");
        let title =
            text("title").or_else(|| annotations.as_ref()?.get("title").and_then(|title| title.read().ok()));
        let mut entry = ToolEntry::from_handler(
            name.shared(),
            text("description").unwrap_or_default(),
            Arc::clone(&self.handler),
        )
        .with_definition(definition(tool, input.as_ref()))
        .with_input_schema(input.unwrap_or_else(|| json!({"type": "object"})))
        .with_annotations(
            annotations.and_then(|annotations| annotations.read::<Annotations>().ok()).unwrap_or_default(),
        );
        if let Some(title) = title {
            entry = entry.with_title(title);
        }
        if let Some(output) = output {
            entry = entry.with_output_schema(output);
        }
        Ok(entry)
    }

    fn warn(&mut self, warning: String) {
        self.n_warnings += 1;
        if self.listed.warnings.len() < MAX_WARNINGS {
            self.listed.warnings.push(warning);
        }
    }

    fn finish(mut self) -> Listed {
        if let Some(n_more) = self.n_warnings.checked_sub(MAX_WARNINGS).filter(|n_more| *n_more > 0) {
            self.listed.warnings.push(format!("and {n_more} more"));
        }
        self.listed
    }
}

/// A schema of a tool, which is an object if it is there.
fn schema(tool: &RawJson, name: &str) -> Result<Option<Value>, String> {
    match tool.get(name).filter(|schema| schema.as_str() != "null") {
        None => Ok(None),
        Some(schema) => match schema.to_value() {
            object @ Value::Object(_) => Ok(Some(object)),
            _ => Err(format!("its `{name}` is no object, or cannot be read")),
        },
    }
}

/// The definition as the server wrote it, with the schema in its place if it was somewhere else.
fn definition(tool: &RawJson, input: Option<&Value>) -> RawJson {
    if tool.get("inputSchema").is_some_and(|schema| schema.is_object()) {
        return tool.clone();
    }
    let input = input.map_or_else(|| RawJson::from(json!({"type": "object"})), RawJson::of);
    tool.without("parameters").with("inputSchema", &input)
}
