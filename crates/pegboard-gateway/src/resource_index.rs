//! Index of the prompts and resources of all servers, under the names that clients see.

use std::collections::{BTreeSet, HashMap};

use pegboard_core::id::{ToolId, ToolboxName};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::catalogue::{ServerListing, Snapshot};
use pegboard_runtime::requests::ServerId;

use crate::profile::{Naming, ProfileView};
use crate::server_subscribers::SubscribedResource;

/// URI prefix of a resource that another server lists too; followed by the server's label and the original
/// URI.
const QUALIFIED_PREFIX: &str = "pegboard://";

/// Prompts, resources and resource templates of all servers of a profile, in catalogue order.
#[derive(Default)]
pub(crate) struct ResourceIndex {
    prompts: IndexSection,
    resources: IndexSection,
    templates: IndexSection,
    /// Toolboxes of all items.
    toolboxes: BTreeSet<ToolboxName>,
    /// Servers with resources, each with the prefix that qualifies its conflicting URIs.
    servers: Vec<(String, ServerId)>,
    has_renamed: bool,
}

/// Items of one kind, each under a unique name.
#[derive(Default)]
struct IndexSection {
    items: Vec<IndexedItem>,
    by_name: HashMap<String, usize>,
}

/// A prompt, resource or template of one server.
struct IndexedItem {
    server: ServerId,
    /// Name or URI on its server.
    upstream_name: String,
    /// Name or URI that clients see.
    name: String,
    /// Definition that clients see in the list.
    listed: RawJson,
}

/// A server, and the server's own name or URI for the requested item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemLocation {
    pub(crate) server: ServerId,
    pub(crate) upstream_name: String,
}

impl ItemLocation {
    /// Returns the resource as a subscription names it.
    pub(crate) fn subscribed(&self) -> SubscribedResource {
        SubscribedResource { server: self.server.clone(), uri: self.upstream_name.clone() }
    }
}

/// Kind of list.
#[derive(Clone, Copy)]
pub(crate) enum ListedItems {
    Prompts,
    Resources,
    Templates,
}

impl ListedItems {
    /// Returns the list kind that a method asks for.
    pub(crate) fn from_method(method: &str) -> Self {
        match method {
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            _ => Self::Templates,
        }
    }

    /// Member of the result that holds the list.
    pub(crate) fn result_key(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }
}

impl ResourceIndex {
    /// Builds the index of a view from a catalogue snapshot.
    pub(crate) fn build(view: &ProfileView, snapshot: &Snapshot) -> Self {
        let mut index = Self::default();
        let listings: Vec<(&ServerListing, &str)> =
            snapshot.listings().filter(|(listing, _)| view.has_toolbox(&listing.toolbox)).collect();
        let naming = view.naming;
        let mut name_counts: HashMap<String, usize> = HashMap::new();
        for name in listings
            .iter()
            .flat_map(|(listing, _)| &listing.offer.prompts)
            .filter_map(|item| string_member(item, "name"))
        {
            *name_counts.entry(name).or_default() += 1;
        }
        for (listing, label) in listings {
            let server = ServerId { toolbox: listing.toolbox.clone(), server: listing.server.clone() };
            let qualified = format!("{QUALIFIED_PREFIX}{label}/");
            index.prompts.add(&server, &listing.offer.prompts, "name", |upstream_name, _| {
                let is_plain = naming == Naming::Transparent && name_counts.get(upstream_name) == Some(&1);
                if is_plain { upstream_name.to_owned() } else { format!("{label}__{upstream_name}") }
            });
            let qualify_if_taken = |upstream_name: &str, is_taken: bool| {
                if is_taken { format!("{qualified}{upstream_name}") } else { upstream_name.to_owned() }
            };
            index.resources.add(&server, &listing.offer.resources, "uri", qualify_if_taken);
            index.templates.add(&server, &listing.offer.templates, "uriTemplate", qualify_if_taken);
            if !listing.offer.resources.is_empty() || !listing.offer.templates.is_empty() {
                index.servers.push((qualified, server));
            }
        }
        let sections = [&index.prompts, &index.resources, &index.templates];
        let items = sections.into_iter().flat_map(|section| &section.items);
        index.toolboxes = items.map(|item| item.server.toolbox.clone()).collect();
        index.has_renamed = index.resources.items.iter().any(|item| item.name != item.upstream_name);
        index
    }

    /// Rewrites the UI resource URI of a listed tool to the one that clients see, if the tool has one.
    pub(crate) fn with_ui_resource_uri(&self, tool: &ToolId, listed: RawJson) -> RawJson {
        if !self.has_renamed {
            return listed;
        }
        let ui = listed.at(&["_meta", "ui", "resourceUri"]);
        let Some(upstream_name) = ui.as_ref().and_then(RawJson::text) else { return listed };
        let server = ServerId { toolbox: tool.toolbox.clone(), server: tool.server.clone() };
        let uri = RawJson::of(&self.public_uri(&server, &upstream_name));
        let meta = listed.get("_meta").unwrap_or_else(RawJson::empty_object);
        let ui = meta.get("ui").unwrap_or_else(RawJson::empty_object).with("resourceUri", &uri);
        listed.with("_meta", &meta.with("ui", &ui))
    }

    /// Returns `true` if a resource has a different URI here than on its server.
    pub(crate) fn has_renamed(&self) -> bool {
        self.has_renamed
    }

    /// Returns the toolboxes with items that are open for a caller.
    pub(crate) fn open_toolboxes(&self, caller: &Caller) -> Vec<ToolboxName> {
        self.toolboxes.iter().filter(|toolbox| caller.is_toolbox_open(toolbox)).cloned().collect()
    }

    /// Returns the items of these toolboxes as a JSON array.
    pub(crate) fn list(&self, kind: ListedItems, toolboxes: &[ToolboxName]) -> RawJson {
        let section = match kind {
            ListedItems::Prompts => &self.prompts,
            ListedItems::Resources => &self.resources,
            ListedItems::Templates => &self.templates,
        };
        let seen = section.items.iter().filter(|item| toolboxes.contains(&item.server.toolbox));
        crate::surface::json_array(seen.map(|item| item.listed.clone()))
    }

    /// Returns the prompt with this name.
    pub(crate) fn find_prompt(&self, name: &str) -> Option<ItemLocation> {
        self.prompts.find(name)
    }

    /// Returns the template with this URI template.
    pub(crate) fn find_template(&self, name: &str) -> Option<ItemLocation> {
        self.templates.find(name)
    }

    /// Returns the servers that may have a resource, most likely first: the server that lists it, or the
    /// first with a matching template, or else every server with resources, because not all resources are
    /// listed.
    pub(crate) fn resource_candidates(&self, uri: &str) -> Vec<ItemLocation> {
        if let Some(found) = self.resources.find(uri) {
            return vec![found];
        }
        let qualified = self.servers.iter().find_map(|(prefix, server)| {
            uri.strip_prefix(prefix.as_str()).map(|upstream_name| ItemLocation {
                server: server.clone(),
                upstream_name: upstream_name.to_owned(),
            })
        });
        if let Some(found) = qualified {
            return vec![found];
        }
        let location =
            |server: &ServerId| ItemLocation { server: server.clone(), upstream_name: uri.to_owned() };
        let matches_template = |item: &&IndexedItem| matches_template(&item.upstream_name, uri);
        if let Some(item) = self.templates.items.iter().find(matches_template) {
            return vec![location(&item.server)];
        }
        self.servers.iter().map(|(_, server)| location(server)).collect()
    }

    /// Compares two indexes: whether prompts are equal, and whether resources and templates are equal.
    pub(crate) fn same_listings(&self, other: &Self) -> (bool, bool) {
        let is_same = |section: &IndexSection, other: &IndexSection| {
            section.items.len() == other.items.len()
                && section.items.iter().zip(&other.items).all(|(one, other)| one.listed == other.listed)
        };
        let resources =
            is_same(&self.resources, &other.resources) && is_same(&self.templates, &other.templates);
        (is_same(&self.prompts, &other.prompts), resources)
    }

    /// Returns the URI that clients see for a resource of a server.
    pub(crate) fn public_uri(&self, server: &ServerId, upstream_name: &str) -> String {
        let item = self
            .resources
            .items
            .iter()
            .find(|item| item.server == *server && item.upstream_name == upstream_name);
        item.map_or_else(|| upstream_name.to_owned(), |item| item.name.clone())
    }
}

impl IndexSection {
    fn add(&mut self, server: &ServerId, items: &[RawJson], key: &str, name: impl Fn(&str, bool) -> String) {
        for item in items {
            let Some(upstream_name) = string_member(item, key) else { continue };
            let name = name(&upstream_name, self.by_name.contains_key(&upstream_name));
            if self.by_name.contains_key(&name) {
                continue;
            }
            let listed =
                if name == upstream_name { item.clone() } else { item.with(key, &RawJson::of(&name)) };
            self.by_name.insert(name.clone(), self.items.len());
            self.items.push(IndexedItem { server: server.clone(), upstream_name, name, listed });
        }
    }

    fn find(&self, name: &str) -> Option<ItemLocation> {
        let item = &self.items[*self.by_name.get(name)?];
        Some(ItemLocation { server: item.server.clone(), upstream_name: item.upstream_name.clone() })
    }
}

fn string_member(item: &RawJson, key: &str) -> Option<String> {
    item.get(key).and_then(|text| text.read().ok())
}

/// Returns `true` if a URI may be an expansion of a template: the literal parts occur in order, with a
/// non-empty value between them.
fn matches_template(template: &str, uri: &str) -> bool {
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
    fn uris_match_their_templates() {
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
            assert_eq!(matches_template(template, uri), expected, "{template} {uri}");
        }
    }
}
