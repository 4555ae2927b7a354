//! Index of the prompts and resources of all servers, under the names that clients see.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::id::{ToolId, ToolboxName};
use pegboard_core::provider::ToolKind;
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::catalogue::{ServerListing, Snapshot};
use pegboard_runtime::requests::ServerId;
use pegboard_wire::era::Era;

use crate::profile::{Naming, ProfileView};
use crate::server_subscribers::SubscribedResource;

/// URI prefix of a resource that another server may have too; followed by the server's label, `/` and the
/// original URI. No server can list such a URI as its own.
const QUALIFIED_PREFIX: &str = "pegboard://";
/// Maximum number of qualified URIs in a refusal.
const MAX_CANDIDATES: usize = 16;

/// URI scheme of views (MCP Apps). Hosts accept no other, so that a qualified URI keeps it.
pub(crate) const VIEW_SCHEME: &str = "ui://";

/// Prefix of the qualified URI of a view; followed by the server's label, `/` and the original URI without its scheme.
const QUALIFIED_VIEW_PREFIX: &str = "ui://pegboard/";

/// Path of the URI of a tool's view in its definition, and the older key for it in `_meta`.
const VIEW_PATH: [&str; 3] = ["_meta", "ui", "resourceUri"];
const OLD_VIEW_KEY: &str = "ui/resourceUri";

/// Prompts, resources and resource templates of all servers of a profile, in catalogue order.
#[derive(Default)]
pub(crate) struct ResourceIndex {
    prompts: IndexSection,
    resources: IndexSection,
    templates: IndexSection,
    /// Toolboxes of all items.
    toolboxes: BTreeSet<ToolboxName>,
    /// All servers by label.
    servers: IndexMap<String, IndexedServer>,
    /// Positions of the servers that list a resource, by its URI on the server.
    by_uri: HashMap<String, Vec<usize>>,
    /// URIs of views that clients see, by tool.
    views: HashMap<ToolId, Arc<str>>,
    /// `true` if a tool's view has a different URI here than on its server.
    has_renamed_views: bool,
}

/// A server of the profile.
struct IndexedServer {
    id: ServerId,
    /// URI templates of its resources.
    templates: Vec<String>,
    /// `false` if the server is known to have no resources.
    may_have_resources: bool,
    /// `true` if its prompts and resources are known.
    is_known: bool,
    /// `true` if its prompts are known, or if it cannot have any.
    prompts_are_known: bool,
}

impl IndexedServer {
    /// Returns `true` if the server may list resources that are not known.
    fn may_list_more(&self) -> bool {
        self.may_have_resources && !self.is_known
    }
}

/// Result of looking up a resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResourceLookup {
    /// The server of the resource.
    Found(ItemLocation),
    /// Several servers may have it: the URIs that name one each.
    Ambiguous(Vec<String>),
    /// No known server has it.
    Missing,
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
    /// Returns the resource as the subscription of a client of an era names it.
    pub(crate) fn subscribed(&self, era: Era) -> SubscribedResource {
        SubscribedResource { server: self.server.clone(), uri: self.upstream_name.clone(), era }
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
        index.add_servers(&listings);
        for (listing, label) in listings {
            let server = ServerId { toolbox: listing.toolbox.clone(), server: listing.server.clone() };
            index.prompts.add(&server, &listing.offer.prompts, "name", |upstream_name| {
                // Another server with unknown prompts may have it, too.
                let is_only =
                    || index.servers.values().all(|other| other.id == server || other.prompts_are_known);
                let is_plain = naming == Naming::Transparent
                    && name_counts.get(upstream_name) == Some(&1)
                    && snapshot.is_own_name(upstream_name, listing)
                    && is_only();
                let flat = format!("{label}__{upstream_name}");
                if is_plain {
                    upstream_name.to_owned()
                } else if snapshot.is_own_name(&flat, listing) {
                    flat
                } else {
                    format!("{label}/{upstream_name}")
                }
            });
            let ResourceIndex { resources, templates, servers, by_uri, .. } = &mut index;
            let qualified = |upstream_name: &str| qualified_uri(label, upstream_name);
            resources.add(&server, &listing.offer.resources, "uri", |uri| {
                if candidates(servers, by_uri, uri).len() == 1 { uri.to_owned() } else { qualified(uri) }
            });
            templates.add(&server, &listing.offer.templates, "uriTemplate", |template| {
                let may_have = |other: &&IndexedServer| {
                    other.may_list_more() || other.templates.iter().any(|other| other == template)
                };
                let is_plain = servers.values().filter(may_have).count() == 1 && is_claim(template);
                if is_plain { template.to_owned() } else { qualified(template) }
            });
        }
        let sections = [&index.prompts, &index.resources, &index.templates];
        let items = sections.into_iter().flat_map(|section| &section.items);
        index.toolboxes = items.map(|item| item.server.toolbox.clone()).collect();
        index.add_views(view, snapshot);
        index
    }

    /// Adds the views of the tools, once all resources are named.
    fn add_views(&mut self, view: &ProfileView, snapshot: &Snapshot) {
        for tool in snapshot.tools().iter().filter(|tool| view.has_toolbox(&tool.id.toolbox)) {
            let Some(upstream_uri) = view_uri(&tool.entry.definition()) else { continue };
            let server = ServerId { toolbox: tool.id.toolbox.clone(), server: tool.id.server.clone() };
            let uri = self.public_uri(&server, &upstream_uri);
            self.has_renamed_views |= uri != upstream_uri;
            self.views.insert(tool.id.clone(), uri.into());
        }
    }

    /// Adds the servers and the resources that they list, before these are named.
    fn add_servers(&mut self, listings: &[(&ServerListing, &str)]) {
        for (at, (listing, label)) in listings.iter().enumerate() {
            let offer = &listing.offer;
            let is_known = listing.is_known && !offer.is_partial;
            let templates = offer.templates.iter().filter_map(|item| string_member(item, "uriTemplate"));
            let server = IndexedServer {
                id: ServerId { toolbox: listing.toolbox.clone(), server: listing.server.clone() },
                templates: templates.collect(),
                may_have_resources: listing.kind == ToolKind::Mcp
                    && (!is_known || !offer.resources.is_empty() || !offer.templates.is_empty()),
                is_known,
                prompts_are_known: is_known || listing.kind != ToolKind::Mcp,
            };
            self.servers.insert((*label).to_owned(), server);
            let uris: BTreeSet<String> =
                offer.resources.iter().filter_map(|item| string_member(item, "uri")).collect();
            for uri in uris {
                self.by_uri.entry(uri).or_default().push(at);
            }
        }
    }

    /// Rewrites the URI of a listed tool's view to the one that clients see, under each key that the tool uses.
    pub(crate) fn with_view_uri(&self, tool: &ToolId, listed: RawJson) -> RawJson {
        let Some(uri) = self.views.get(tool).filter(|_| self.has_renamed_views) else { return listed };
        let uri = RawJson::of(&**uri);
        let mut meta = listed.get("_meta").unwrap_or_else(RawJson::empty_object);
        if let Some(ui) = meta.get("ui").filter(|ui| ui.get("resourceUri").is_some()) {
            meta = meta.with("ui", &ui.with("resourceUri", &uri));
        }
        if meta.get(OLD_VIEW_KEY).is_some() {
            meta = meta.with(OLD_VIEW_KEY, &uri);
        }
        listed.with("_meta", &meta)
    }

    /// Returns the URI of a tool's view, if it has one.
    pub(crate) fn tool_view(&self, tool: &ToolId) -> Option<Arc<str>> {
        self.views.get(tool).cloned()
    }

    /// Returns `true` if a tool's view has a different URI here than on its server.
    pub(crate) fn has_renamed_views(&self) -> bool {
        self.has_renamed_views
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

    /// Returns the prompt with this name. While the prompts of a server are not known, every name with its
    /// prefix may be one of them, and of no other server.
    pub(crate) fn find_prompt(&self, snapshot: &Snapshot, name: &str) -> Option<ItemLocation> {
        self.prompts.find(name).or_else(|| {
            let (listing, upstream_name) = snapshot.owner(name)?;
            let is_owner = |server: &&IndexedServer| {
                server.id.toolbox == listing.toolbox && server.id.server == listing.server
            };
            let server = self.servers.values().find(is_owner).filter(|server| !server.is_known)?;
            Some(ItemLocation { server: server.id.clone(), upstream_name: upstream_name.to_owned() })
        })
    }

    /// Returns the template with this URI template.
    pub(crate) fn find_template(&self, name: &str) -> Option<ItemLocation> {
        self.templates.find(name)
    }

    /// Returns the server of a resource: the one that a qualified URI names, or else the only one that lists
    /// the URI or a template for it while no other may list it, or else the only one that can have resources,
    /// because not all are listed.
    pub(crate) fn find_resource(&self, uri: &str) -> ResourceLookup {
        if let Some((label, upstream_name)) = parse_qualified(uri) {
            return match self.servers.get(label) {
                Some(server) => {
                    ResourceLookup::Found(ItemLocation { server: server.id.clone(), upstream_name })
                }
                None => ResourceLookup::Missing,
            };
        }
        let mut candidates = candidates(&self.servers, &self.by_uri, uri);
        if candidates.iter().all(|at| !self.claims(*at, uri)) {
            // Servers also have resources that they do not list.
            let may_have = |at: &usize| self.servers[*at].may_have_resources;
            let n_unknown = candidates.len();
            candidates = (0..self.servers.len()).filter(may_have).collect();
            if n_unknown == 0 && candidates.len() > 1 {
                return ResourceLookup::Missing;
            }
        }
        match candidates[..] {
            [] => ResourceLookup::Missing,
            [at] => ResourceLookup::Found(ItemLocation {
                server: self.servers[at].id.clone(),
                upstream_name: uri.to_owned(),
            }),
            _ => {
                let candidates = candidates.iter().take(MAX_CANDIDATES);
                ResourceLookup::Ambiguous(candidates.map(|at| self.qualified(*at, uri)).collect())
            }
        }
    }

    fn claims(&self, server: usize, uri: &str) -> bool {
        claims(&self.servers[server], server, &self.by_uri, uri)
    }

    fn qualified(&self, server: usize, uri: &str) -> String {
        let label = self.servers.get_index(server).map(|(label, _)| label.as_str()).unwrap_or_default();
        qualified_uri(label, uri)
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

    /// Returns both URIs of a resource of a server, plain and qualified.
    pub(crate) fn both_uris(&self, server: &ServerId, upstream_name: &str) -> [String; 2] {
        let at = self.servers.values().position(|other| other.id == *server);
        let qualified = at.map_or_else(|| upstream_name.to_owned(), |at| self.qualified(at, upstream_name));
        [upstream_name.to_owned(), qualified]
    }

    /// Returns the URI that clients see for a resource of a server.
    pub(crate) fn public_uri(&self, server: &ServerId, upstream_name: &str) -> String {
        let at = self.servers.values().position(|other| other.id == *server);
        match (at, self.find_resource(upstream_name)) {
            (Some(_), ResourceLookup::Found(found)) if found.server == *server => upstream_name.to_owned(),
            (Some(at), _) => self.qualified(at, upstream_name),
            (None, _) => upstream_name.to_owned(),
        }
    }
}

/// Returns the positions of the servers that list a resource or a template for it, and of those that may list it
/// because their listing is not known. A qualified URI belongs to the server that it names, and listing it is no
/// claim.
fn candidates(
    servers: &IndexMap<String, IndexedServer>,
    by_uri: &HashMap<String, Vec<usize>>,
    uri: &str,
) -> Vec<usize> {
    if parse_qualified(uri).is_some() {
        return Vec::new();
    }
    let is_candidate = |(at, server): (usize, &IndexedServer)| {
        (server.may_list_more() || claims(server, at, by_uri, uri)).then_some(at)
    };
    servers.values().enumerate().filter_map(is_candidate).collect()
}

/// Returns `true` if a server lists a resource, or a template for it.
fn claims(server: &IndexedServer, at: usize, by_uri: &HashMap<String, Vec<usize>>, uri: &str) -> bool {
    let is_match = |template: &String| is_claim(template) && matches_template(template, uri);
    by_uri.get(uri).is_some_and(|listing| listing.contains(&at)) || server.templates.iter().any(is_match)
}

/// Returns `true` if a template can claim URIs: it has a scheme of its own, and not that of qualified URIs. Any other
/// would claim the resources of all servers.
fn is_claim(template: &str) -> bool {
    let fixed = template.split('{').next().unwrap_or_default();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|each| each.is_ascii_alphanumeric() || "+.-".contains(each))
    };
    fixed.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)) && parse_qualified(template).is_none()
}

/// Names the view of a tool in the `_meta` of its result, for clients that have called it through another tool and so
/// have not seen its definition. A view that the server names itself stays.
pub(crate) fn with_view(result: RawJson, view: Option<&str>) -> RawJson {
    let Some(uri) = view else { return result };
    let meta = result.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let ui = meta.get("ui").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    if ui.get("resourceUri").is_some() {
        return result;
    }
    let uri = RawJson::of(uri);
    let meta = meta.with("ui", &ui.with("resourceUri", &uri)).with(OLD_VIEW_KEY, &uri);
    result.with("_meta", &meta)
}

/// Returns the URI that names a resource and its server.
fn qualified_uri(label: &str, uri: &str) -> String {
    match uri.strip_prefix(VIEW_SCHEME) {
        Some(rest) => format!("{QUALIFIED_VIEW_PREFIX}{label}/{rest}"),
        None => format!("{QUALIFIED_PREFIX}{label}/{uri}"),
    }
}

/// Returns the label and the original URI of a qualified one. A URI with the prefix and no label has an empty label,
/// which no server has.
fn parse_qualified(uri: &str) -> Option<(&str, String)> {
    if let Some(qualified) = uri.strip_prefix(QUALIFIED_VIEW_PREFIX) {
        let (label, rest) = qualified.split_once('/').unwrap_or_default();
        return Some((label, format!("{VIEW_SCHEME}{rest}")));
    }
    let (label, rest) = uri.strip_prefix(QUALIFIED_PREFIX)?.split_once('/').unwrap_or_default();
    Some((label, rest.to_owned()))
}

/// Returns the URI of a tool's view.
fn view_uri(definition: &RawJson) -> Option<String> {
    let meta = definition.get(VIEW_PATH[0])?;
    let uri = meta.at(&VIEW_PATH[1..]).or_else(|| meta.get(OLD_VIEW_KEY))?;
    uri.text().map(Cow::into_owned)
}

impl IndexSection {
    fn add(&mut self, server: &ServerId, items: &[RawJson], key: &str, name: impl Fn(&str) -> String) {
        for item in items {
            let Some(upstream_name) = string_member(item, key) else { continue };
            let name = name(&upstream_name);
            if self.by_name.contains_key(&name) {
                continue;
            }
            let listed =
                if name == upstream_name { item.clone() } else { item.with(key, &RawJson::of(&name)) };
            self.by_name.insert(name, self.items.len());
            self.items.push(IndexedItem { server: server.clone(), upstream_name, listed });
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
