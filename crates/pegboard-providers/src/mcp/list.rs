//! The lists of a server, read page by page.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pegboard_core::entry::ToolEntry;
use pegboard_core::handler::Handler;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::{Failure, code};

use super::{tasks, tool};

/// How many pages are read.
const MAX_PAGES: usize = 1_000;
/// How many entries a list may have.
const MAX_ITEMS: usize = 20_000;
/// How long all entries together may be.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How long a cursor may be.
const MAX_CURSOR_BYTES: usize = 8 * 1024;
/// How many entries are named that were left out.
const MAX_WARNINGS: usize = 100;
/// How much of a name is told.
const MAX_NAME_BYTES: usize = 80;
/// How much of a warning of the wire is told.
const MAX_WARNING_BYTES: usize = 300;

/// One of the lists that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl List {
    pub(super) const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// What it holds, in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "templates of resources",
        }
    }

    /// The notification that it is not what it was.
    pub(super) fn change(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// The capability of a server that has it.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// Whether a server says that it has it.
    pub(super) fn is_offered_by(self, client: &Client) -> bool {
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

    /// The member of a page that holds the entries.
    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member that tells an entry from all others.
    fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// What one entry is, in words.
    fn item(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "template",
        }
    }
}

/// What a server lists.
pub(super) struct Listed<T = Arc<ToolEntry>> {
    pub(super) items: Vec<T>,
    /// What was left out, and why.
    pub(super) warnings: Vec<String>,
    /// How long it may be kept, if the server says so.
    pub(super) keep: Option<Duration>,
}

/// Reads the whole list of tools.
pub(super) async fn read_tools(client: &Client, handler: &Arc<dyn Handler>) -> Result<Listed, Failure> {
    let Pages { items, mut warnings, keep, .. } = Pages::read(client, List::Tools).await?;
    let items = sift(List::Tools, &items, &mut warnings, |item| tool::entry(item, handler));
    Ok(Listed { items, warnings: warnings.finish(), keep })
}

/// Reads the whole of a list whose entries stay as they are written.
pub(super) async fn read(client: &Client, list: List) -> Result<Listed<RawJson>, Failure> {
    let Pages { items, mut warnings, keep, .. } = Pages::read(client, list).await?;
    let items = sift(list, &items, &mut warnings, |item| as_written(list, item));
    Ok(Listed { items, warnings: warnings.finish(), keep })
}

/// Asks for one page.
pub(super) async fn ask(client: &Client, list: List, params: Option<RawJson>) -> Result<RawJson, Failure> {
    client.request(list.method(), params, RequestOptions::default()).await?.answer().await
}

/// An entry that is nobody's business but the caller's, if it has what tells it from others.
pub(super) fn as_written(list: List, item: &RawJson) -> Result<RawJson, String> {
    let has_text =
        |name: &str| item.get(name).is_some_and(|text| text.text().is_some_and(|text| !text.is_empty()));
    let names: &[&str] = match list {
        List::Tools | List::Prompts => &["name"],
        List::Resources => &["uri"],
        List::Templates => &["uriTemplate", "name"],
    };
    match names.iter().find(|name| !has_text(name)) {
        Some(missing) => Err(format!("it has no {missing}")),
        None => Ok(item.clone()),
    }
}

/// The entries that make sense. The others are left out, with a word on each.
pub(super) fn sift<T>(
    list: List,
    items: &[RawJson],
    warnings: &mut Warnings,
    read: impl Fn(&RawJson) -> Result<T, String>,
) -> Vec<T> {
    let (mut good, mut names) = (Vec::with_capacity(items.len()), HashSet::new());
    for (number, item) in items.iter().enumerate() {
        let key = list.key();
        let name = item.get(key).and_then(|name| name.read::<String>().ok());
        let sense = match &name {
            None => Err(format!("it has no {key}, or one that is no text")),
            Some(name) => read(item).and_then(|entry| {
                let is_first = names.insert(name.clone());
                is_first.then_some(entry).ok_or_else(|| format!("one of this {key} comes before it"))
            }),
        };
        match sense {
            Ok(entry) => good.push(entry),
            Err(problem) => {
                let which = match name.filter(|name| !name.is_empty()) {
                    Some(name) => format!("{} {:?}", list.item(), clipped(&name, MAX_NAME_BYTES)),
                    None => format!("entry {} of the list of {}", number + 1, list.name()),
                };
                warnings.add(format!("{which} is left out: {problem}"));
            }
        }
    }
    good
}

/// A list as it comes, page by page.
struct Pages {
    list: List,
    items: Vec<RawJson>,
    n_bytes: usize,
    warnings: Warnings,
    is_full: bool,
    /// How long the page may be kept that may be kept the shortest.
    keep: Option<Duration>,
}

impl Pages {
    async fn read(client: &Client, list: List) -> Result<Self, Failure> {
        let warnings = Warnings::default();
        let mut pages = Self { list, items: Vec::new(), n_bytes: 0, warnings, is_full: false, keep: None };
        let mut seen = HashSet::new();
        let mut params = None;
        for _ in 0..MAX_PAGES {
            let page = match ask(client, list, params).await {
                Err(Failure::Refused(error)) if error.code == code::METHOD_NOT_FOUND => {
                    // Many a server has resources and no templates of them.
                    if list == List::Tools && list.is_offered_by(client) {
                        let problem = "the server says that it has tools, and does not list them";
                        pages.warnings.add(problem.to_owned());
                    }
                    return Ok(pages);
                }
                page => page?,
            };
            pages.take(client, &page);
            let Some(cursor) = next_cursor(&page).filter(|_| !pages.is_full) else { return Ok(pages) };
            if cursor.as_bytes().len() > MAX_CURSOR_BYTES || !seen.insert(cursor.clone()) {
                pages.stop("the pages of the list of", "lead in a circle");
                return Ok(pages);
            }
            params = Some(RawJson::empty_object().with("cursor", &cursor));
        }
        pages.stop("the list of", &format!("has more than {MAX_PAGES} pages"));
        Ok(pages)
    }

    fn take(&mut self, client: &Client, page: &RawJson) {
        let keep = page.get("ttlMs").and_then(|keep| keep.read::<u64>().ok()).map(Duration::from_millis);
        self.keep = match (self.keep, keep) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let items: Vec<RawJson> = match (self.list, client.era()) {
            // Only there can a tool ask for headers, and ask for what cannot be.
            (List::Tools, Era::Stateless) => {
                let (good, refused) = client.take_tools(page);
                for problem in refused {
                    self.warnings.add(clipped(&problem, MAX_WARNING_BYTES).into_owned());
                }
                good.into_iter().map(|tool| tasks::marked(tool, client)).collect()
            }
            (list, _) => page.get(list.member()).map(|items| items.items().collect()).unwrap_or_default(),
        };
        for item in items {
            self.n_bytes += item.as_bytes().len();
            if self.items.len() >= MAX_ITEMS || self.n_bytes > MAX_BYTES {
                self.is_full = true;
                let n_mib = MAX_BYTES / (1024 * 1024);
                self.stop("the list of", &format!("has more than {MAX_ITEMS} entries or {n_mib} MiB"));
                return;
            }
            self.items.push(item);
        }
    }

    fn stop(&mut self, what: &str, why: &str) {
        self.warnings.add(format!("{what} {} {why}; the rest is left out", self.list.name()));
    }
}

/// Where the list goes on. An empty cursor is none: some servers say so.
fn next_cursor(page: &RawJson) -> Option<RawJson> {
    page.get("nextCursor").filter(|cursor| cursor.text().is_some_and(|text| !text.is_empty()))
}

/// What is wrong with a list, for people: the first lines, and how many more there are.
#[derive(Default)]
pub(super) struct Warnings {
    lines: Vec<String>,
    n_more: usize,
}

impl Warnings {
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
