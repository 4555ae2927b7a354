//! The paginated lists of a server.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pegboard_core::entry::ToolEntry;
use pegboard_core::handler::Handler;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::{RequestError, code};

use super::{tasks, tool};

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 1_000;
/// Maximum number of entries of a list.
const MAX_ITEMS: usize = 20_000;
/// Maximum total size of the entries of a list.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Maximum length of a cursor.
const MAX_CURSOR_BYTES: usize = 8 * 1024;
/// Maximum number of warnings about skipped entries.
const MAX_WARNINGS: usize = 100;
/// Maximum length of a name in a warning.
const MAX_NAME_BYTES: usize = 80;
/// Maximum length of a warning from the wire client.
const MAX_WARNING_BYTES: usize = 300;

/// One of the lists of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl ListKind {
    pub(super) const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// Returns the name of the list for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resource templates",
        }
    }

    /// Returns the method of the notification that the list has changed.
    pub(super) fn changed_notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// Returns the capability of a server that has the list.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// Returns `true` if the server declares the capability for the list.
    pub(super) fn is_offered_by(self, client: &McpClient) -> bool {
        let capability = client.server().capabilities.get(self.capability());
        capability.is_some_and(|capability| capability.is_object())
    }

    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// Returns the key of the entries in a page.
    fn items_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// Returns the key that identifies an entry.
    pub(super) fn id_key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// Returns the name of one entry for messages.
    fn singular(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "template",
        }
    }
}

/// A list as read from a server.
pub(super) struct FetchedList<T = Arc<ToolEntry>> {
    pub(super) items: Vec<T>,
    /// Skipped entries, with reasons.
    pub(super) warnings: Vec<String>,
    /// Time to live, if the server declares one.
    pub(super) ttl: Option<Duration>,
}

/// Reads the whole list of tools. Without a handler the client learns of their header parameters, but there are
/// no entries.
pub(super) async fn read_tools(
    client: &McpClient,
    handler: Option<&Arc<dyn Handler>>,
) -> Result<FetchedList, RequestError> {
    let PageReader { items, mut warnings, ttl, .. } = PageReader::read(client, ListKind::Tools).await?;
    let items = handler.map_or_else(Vec::new, |handler| {
        keep_valid(ListKind::Tools, &items, &mut warnings, |item| tool::entry(item, handler))
    });
    Ok(FetchedList { items, warnings: warnings.finish(), ttl })
}

/// Reads a whole list of entries that are kept as raw JSON.
pub(super) async fn read(client: &McpClient, list: ListKind) -> Result<FetchedList<RawJson>, RequestError> {
    let PageReader { items, mut warnings, ttl, .. } = PageReader::read(client, list).await?;
    let items = keep_valid(list, &items, &mut warnings, |item| check_required_keys(list, item));
    Ok(FetchedList { items, warnings: warnings.finish(), ttl })
}

/// Requests one page.
pub(super) async fn request_page(
    client: &McpClient,
    list: ListKind,
    params: Option<RawJson>,
) -> Result<RawJson, RequestError> {
    client.request(list.method(), params, RequestOptions::default()).await?.response().await
}

/// Returns an entry unchanged if it has all required keys.
pub(super) fn check_required_keys(list: ListKind, item: &RawJson) -> Result<RawJson, String> {
    let has_text =
        |name: &str| item.get(name).is_some_and(|text| text.text().is_some_and(|text| !text.is_empty()));
    let names: &[&str] = match list {
        ListKind::Tools | ListKind::Prompts => &["name"],
        ListKind::Resources => &["uri"],
        ListKind::Templates => &["uriTemplate", "name"],
    };
    match names.iter().find(|name| !has_text(name)) {
        Some(missing) => Err(format!("`{missing}` is missing")),
        None => Ok(item.clone()),
    }
}

/// Returns the valid entries. The others are skipped with a warning.
pub(super) fn keep_valid<T>(
    list: ListKind,
    items: &[RawJson],
    warnings: &mut ListWarnings,
    read: impl Fn(&RawJson) -> Result<T, String>,
) -> Vec<T> {
    let (mut valid, mut names) = (Vec::with_capacity(items.len()), HashSet::new());
    for (number, item) in items.iter().enumerate() {
        let key = list.id_key();
        let name = item.get(key).and_then(|name| name.read::<String>().ok());
        let parsed = match &name {
            None => Err(format!("`{key}` is missing or not a string")),
            Some(name) => read(item).and_then(|entry| {
                let is_first = names.insert(name.clone());
                is_first.then_some(entry).ok_or_else(|| format!("duplicate `{key}`"))
            }),
        };
        match parsed {
            Ok(entry) => valid.push(entry),
            Err(problem) => {
                let subject = match name.filter(|name| !name.is_empty()) {
                    Some(name) => format!("{} {:?}", list.singular(), clipped(&name, MAX_NAME_BYTES)),
                    None => format!("entry {} of the list of {}", number + 1, list.name()),
                };
                warnings.add(format!("{subject} is skipped: {problem}"));
            }
        }
    }
    valid
}

/// Reader of a list, page by page.
struct PageReader {
    list: ListKind,
    items: Vec<RawJson>,
    n_bytes: usize,
    warnings: ListWarnings,
    is_full: bool,
    /// Shortest time to live of the pages.
    ttl: Option<Duration>,
}

impl PageReader {
    async fn read(client: &McpClient, list: ListKind) -> Result<Self, RequestError> {
        let warnings = ListWarnings::default();
        let mut pages = Self { list, items: Vec::new(), n_bytes: 0, warnings, is_full: false, ttl: None };
        let mut seen = HashSet::new();
        let mut params = None;
        for _ in 0..MAX_PAGES {
            let page = match request_page(client, list, params).await {
                Err(RequestError::Rpc(error)) if error.code == code::METHOD_NOT_FOUND => {
                    // Servers with resources often lack templates.
                    if list == ListKind::Tools && list.is_offered_by(client) {
                        let problem = "the server declares tools but does not list them";
                        pages.warnings.add(problem.to_owned());
                    }
                    return Ok(pages);
                }
                page => page?,
            };
            pages.add_page(client, &page);
            let Some(cursor) = next_cursor(&page).filter(|_| !pages.is_full) else { return Ok(pages) };
            if cursor.as_bytes().len() > MAX_CURSOR_BYTES || !seen.insert(cursor.clone()) {
                pages.warn_truncated("the pages of the list of", "repeat");
                return Ok(pages);
            }
            params = Some(RawJson::empty_object().with("cursor", &cursor));
        }
        pages.warn_truncated("the list of", &format!("has more than {MAX_PAGES} pages"));
        Ok(pages)
    }

    fn add_page(&mut self, client: &McpClient, page: &RawJson) {
        let ttl = page.get("ttlMs").and_then(|ttl| ttl.read::<u64>().ok()).map(Duration::from_millis);
        self.ttl = match (self.ttl, ttl) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let items: Vec<RawJson> = match (self.list, client.era()) {
            // Only stateless servers can map tool parameters to headers, which may be invalid.
            (ListKind::Tools, Era::Stateless) => {
                let (valid, refused) = client.register_tools(page);
                for problem in refused {
                    self.warnings.add(clipped(&problem, MAX_WARNING_BYTES).into_owned());
                }
                valid.into_iter().map(|tool| tasks::with_task_support(tool, client)).collect()
            }
            (list, _) => page.get(list.items_key()).map(|items| items.items().collect()).unwrap_or_default(),
        };
        for item in items {
            self.n_bytes += item.as_bytes().len();
            if self.items.len() >= MAX_ITEMS || self.n_bytes > MAX_BYTES {
                self.is_full = true;
                let n_mib = MAX_BYTES / (1024 * 1024);
                self.warn_truncated(
                    "the list of",
                    &format!("has more than {MAX_ITEMS} entries or {n_mib} MiB"),
                );
                return;
            }
            self.items.push(item);
        }
    }

    fn warn_truncated(&mut self, what: &str, why: &str) {
        self.warnings.add(format!("{what} {} {why}; the rest is skipped", self.list.name()));
    }
}

/// Returns the cursor of the next page. An empty cursor is none: some servers end their lists with it.
fn next_cursor(page: &RawJson) -> Option<RawJson> {
    page.get("nextCursor").filter(|cursor| cursor.text().is_some_and(|text| !text.is_empty()))
}

/// Warnings about a list: the first ones, and the number of those left out.
#[derive(Default)]
pub(super) struct ListWarnings {
    lines: Vec<String>,
    n_more: usize,
}

impl ListWarnings {
    fn add(&mut self, line: String) {
        if self.lines.len() < MAX_WARNINGS {
            self.lines.push(line);
        } else {
            self.n_more += 1;
        }
    }

    pub(super) fn finish(mut self) -> Vec<String> {
        if self.n_more > 0 {
            self.lines.push(format!("and {} more", self.n_more));
        }
        self.lines
    }
}
