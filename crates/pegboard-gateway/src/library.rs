//! Prompts and resources of all servers, as clients see them.

use std::collections::HashMap;

use pegboard_core::id::ToolId;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::catalogue::{Shelf, Snapshot};
use pegboard_runtime::requests::ServerId;

use crate::profile::{Board, Naming};

/// Where the addresses of resources begin that another server has, too. What follows is the server and the address.
const OF_ONE: &str = "pegboard://";

/// Prompts, resources and templates of all servers of a board, in order.
#[derive(Default)]
pub(crate) struct Library {
    prompts: Section,
    resources: Section,
    templates: Section,
    /// The servers that have resources, by what stands before addresses that others have, too.
    servers: Vec<(String, ServerId)>,
    has_renamed: bool,
}

/// Things of one kind, each under a name of its own.
#[derive(Default)]
struct Section {
    items: Vec<Item>,
    by_name: HashMap<String, usize>,
}

/// Something that one server has.
struct Item {
    from: ServerId,
    /// What its server calls it.
    own: String,
    /// What it is called here.
    name: String,
    /// As it is listed here.
    listed: RawJson,
}

/// A server, and what it calls what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) from: ServerId,
    pub(crate) own: String,
}

/// What is listed.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Prompts,
    Resources,
    Templates,
}

impl Kind {
    /// What a method lists.
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            _ => Self::Templates,
        }
    }

    /// What the list is called in an answer.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }
}

impl Library {
    /// The library of a board.
    pub(crate) fn of(board: &Board, snapshot: &Snapshot) -> Self {
        let mut library = Self::default();
        let shelves: Vec<(&Shelf, &str)> =
            snapshot.shelves().filter(|(shelf, _)| board.has(&shelf.toolbox)).collect();
        let naming = board.view().naming;
        let mut n_named: HashMap<String, usize> = HashMap::new();
        for name in
            shelves.iter().flat_map(|(shelf, _)| &shelf.offer.prompts).filter_map(|item| text(item, "name"))
        {
            *n_named.entry(name).or_default() += 1;
        }
        for (shelf, label) in shelves {
            let from = ServerId { toolbox: shelf.toolbox.clone(), server: shelf.server.clone() };
            let alone = format!("{OF_ONE}{label}/");
            library.prompts.add(&from, &shelf.offer.prompts, "name", |own, _| {
                let is_plain = naming == Naming::Transparent && n_named.get(own) == Some(&1);
                if is_plain { own.to_owned() } else { format!("{label}__{own}") }
            });
            let whole_or_alone = |own: &str, is_taken: bool| {
                if is_taken { format!("{alone}{own}") } else { own.to_owned() }
            };
            library.resources.add(&from, &shelf.offer.resources, "uri", whole_or_alone);
            library.templates.add(&from, &shelf.offer.templates, "uriTemplate", whole_or_alone);
            if !shelf.offer.resources.is_empty() || !shelf.offer.templates.is_empty() {
                library.servers.push((alone, from));
            }
        }
        library.has_renamed = library.resources.items.iter().any(|item| item.name != item.own);
        library
    }

    /// A tool as it is listed here: the resource that shows it, if there is one, under the address that it has here.
    pub(crate) fn with_address(&self, tool: &ToolId, listed: RawJson) -> RawJson {
        if !self.has_renamed {
            return listed;
        }
        let view = listed.at(&["_meta", "ui", "resourceUri"]);
        let Some(own) = view.as_ref().and_then(RawJson::text) else { return listed };
        let from = ServerId { toolbox: tool.toolbox.clone(), server: tool.server.clone() };
        let address = RawJson::of(&self.uri_of(&from, &own));
        let meta = listed.get("_meta").unwrap_or_else(RawJson::empty_object);
        let view = meta.get("ui").unwrap_or_else(RawJson::empty_object).with("resourceUri", &address);
        listed.with("_meta", &meta.with("ui", &view))
    }

    /// Whether some resource has another address here than at its server.
    pub(crate) fn has_renamed(&self) -> bool {
        self.has_renamed
    }

    /// What is listed for somebody, as a JSON array.
    pub(crate) fn list(&self, kind: Kind, caller: &Caller) -> RawJson {
        let section = match kind {
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::Templates => &self.templates,
        };
        let seen = section.items.iter().filter(|item| caller.has_open(&item.from.toolbox));
        crate::surface::array(seen.map(|item| item.listed.clone()))
    }

    /// The prompt of this name.
    pub(crate) fn prompt(&self, name: &str) -> Option<Found> {
        self.prompts.find(name)
    }

    /// The template of this name.
    pub(crate) fn template(&self, name: &str) -> Option<Found> {
        self.templates.find(name)
    }

    /// Who may have the resource at an address, the likeliest first: whoever lists it, or whose template it fits, or
    /// else everybody who has resources, since not all are listed.
    pub(crate) fn resource(&self, uri: &str) -> Vec<Found> {
        if let Some(found) = self.resources.find(uri) {
            return vec![found];
        }
        let alone = self.servers.iter().find_map(|(prefix, from)| {
            uri.strip_prefix(prefix.as_str()).map(|own| Found { from: from.clone(), own: own.to_owned() })
        });
        if let Some(found) = alone {
            return vec![found];
        }
        let here = |from: &ServerId| Found { from: from.clone(), own: uri.to_owned() };
        let fits = |item: &&Item| fits(&item.own, uri);
        if let Some(item) = self.templates.items.iter().find(fits) {
            return vec![here(&item.from)];
        }
        self.servers.iter().map(|(_, from)| here(from)).collect()
    }

    /// Whether the other has the same prompts, and the same resources and templates.
    pub(crate) fn is_same(&self, other: &Self) -> (bool, bool) {
        let is_same = |section: &Section, other: &Section| {
            section.items.len() == other.items.len()
                && section.items.iter().zip(&other.items).all(|(one, other)| one.listed == other.listed)
        };
        let resources =
            is_same(&self.resources, &other.resources) && is_same(&self.templates, &other.templates);
        (is_same(&self.prompts, &other.prompts), resources)
    }

    /// What a resource of a server is called here.
    pub(crate) fn uri_of(&self, from: &ServerId, own: &str) -> String {
        let item = self.resources.items.iter().find(|item| item.from == *from && item.own == own);
        item.map_or_else(|| own.to_owned(), |item| item.name.clone())
    }
}

impl Section {
    fn add(&mut self, from: &ServerId, items: &[RawJson], key: &str, name: impl Fn(&str, bool) -> String) {
        for item in items {
            let Some(own) = text(item, key) else { continue };
            let name = name(&own, self.by_name.contains_key(&own));
            if self.by_name.contains_key(&name) {
                continue;
            }
            let listed = if name == own { item.clone() } else { item.with(key, &RawJson::of(&name)) };
            self.by_name.insert(name.clone(), self.items.len());
            self.items.push(Item { from: from.clone(), own, name, listed });
        }
    }

    fn find(&self, name: &str) -> Option<Found> {
        let item = &self.items[*self.by_name.get(name)?];
        Some(Found { from: item.from.clone(), own: item.own.clone() })
    }
}

fn text(item: &RawJson, key: &str) -> Option<String> {
    item.get(key).and_then(|text| text.read().ok())
}

/// Whether an address may come from a template: its fixed parts are there, in order, and something is in between.
fn fits(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let Some(mut rest) = parts.next().and_then(|first| uri.strip_prefix(first)) else { return false };
    for part in parts {
        let Some((expression, fixed)) = part.split_once('}') else { return false };
        let stops_at_slash = !expression.starts_with(['+', '#', '/', '?', '&', ';', '.']);
        let end = if fixed.is_empty() { rest.len() } else { rest.find(fixed).unwrap_or(0) };
        let filled = &rest[..end];
        if filled.is_empty() || (stops_at_slash && filled.contains('/')) {
            return false;
        }
        rest = &rest[end + fixed.len()..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fits_the_template_that_it_may_come_from() {
        let cases = [
            ("file:///{path}", "file:///a", true),
            ("file:///{path}", "file:///a/b", false),
            ("file:///{+path}", "file:///a/b", true),
            ("file:///{path}", "file:///", false),
            ("test://template/{id}/data", "test://template/7/data", true),
            ("test://template/{id}/data", "test://template/7/8/data", false),
            ("test://template/{id}/data", "test://template/7", false),
            ("db://{table}/{row}", "db://users/7", true),
            ("db://{table}/{row}", "db://users", false),
            ("fixed://a", "fixed://a", true),
            ("fixed://a", "fixed://ab", false),
            ("broken://{a", "broken://x", false),
        ];
        for (template, uri, expected) in cases {
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
        }
    }
}
