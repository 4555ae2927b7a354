//! Serialized tool lists. The tools of a server are serialized once, until they change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use pegboard_json::RawJson;

use super::{CatalogueTool, Snapshot, ToolboxScope};

/// Format of tools in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListFormat {
    /// Naming of the tools.
    pub name_style: NameStyle,
    /// Inclusion of output schemas.
    pub output_schemas: OutputSchemas,
}

/// Naming of tools in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameStyle {
    /// Flat names.
    #[default]
    Flat,
    /// Names as given by the server, with `server` and `toolbox` beside them.
    Toolbox,
}

/// Inclusion of output schemas in a list.
///
/// A truncated or stored answer does not match its schema, and a client may reject it for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputSchemas {
    /// Include all schemas.
    #[default]
    Include,
    /// Omit the schemas of tools with an output limit of their own.
    OmitIfLimited,
    /// Omit all schemas.
    Omit,
}

impl CatalogueTool {
    /// Returns the definition as written by the server, adjusted to the list format.
    pub fn listed(&self, view: ListFormat) -> RawJson {
        let definition = self.entry.definition();
        let definition = match (view.output_schemas, self.policy.max_output) {
            (OutputSchemas::Include, _) | (OutputSchemas::OmitIfLimited, None) => definition,
            (OutputSchemas::OmitIfLimited, Some(_)) | (OutputSchemas::Omit, _) => {
                definition.without("outputSchema")
            }
        };
        match view.name_style {
            NameStyle::Flat => definition.with("name", &RawJson::of(&*self.flat_name)),
            NameStyle::Toolbox => definition
                .with("server", &RawJson::of(&self.id.server))
                .with("toolbox", &RawJson::of(&self.id.toolbox)),
        }
    }
}

impl Snapshot {
    /// Returns the tools of a scope as a JSON array, in order.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::{ToolboxScope, Snapshot, ListFormat};
    /// assert_eq!(Snapshot::default().list(ListFormat::default(), ToolboxScope::All).as_str(), "[]");
    /// ```
    pub fn list(&self, format: ListFormat, scope: ToolboxScope<'_>) -> RawJson {
        let n_bytes: usize = self.parts(format, scope).map(|part| part.text.len() + 1).sum();
        let mut text = Vec::with_capacity(n_bytes + 2);
        text.push(b'[');
        for part in self.parts(format, scope) {
            if text.len() > 1 {
                text.push(b',');
            }
            text.extend_from_slice(&part.text);
        }
        text.push(b']');
        RawJson::trusted(text.into())
    }

    /// Returns a digest of [`list`](Self::list), which is not built for it.
    pub fn list_digest(&self, format: ListFormat, scope: ToolboxScope<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.parts(format, scope).for_each(|part| part.digest.hash(&mut hasher));
        hasher.finish()
    }

    /// Returns the serialized tools of each server of a scope that has any, in order.
    fn parts(&self, format: ListFormat, scope: ToolboxScope<'_>) -> impl Iterator<Item = &ListPart> {
        let slots = self.slots.iter().filter(move |slot| scope.has(&slot.listing.toolbox));
        let with_tools = slots.filter(|slot| !slot.span.is_empty());
        with_tools.map(move |slot| slot.list.get(format, &self.tools[slot.span.clone()]))
    }
}

/// The serialized tools of one server, in every format that was requested. Snapshots with the same tools of
/// the server share it.
#[derive(Debug, Default)]
pub(super) struct ServerList([[OnceLock<ListPart>; 3]; 2]);

/// The serialized tools of one server in one format.
#[derive(Debug)]
struct ListPart {
    /// The tools, separated by commas.
    text: Box<[u8]>,
    digest: u64,
}

impl ServerList {
    fn get(&self, format: ListFormat, tools: &[Arc<CatalogueTool>]) -> &ListPart {
        let part = &self.0[format.name_style as usize][format.output_schemas as usize];
        part.get_or_init(|| {
            let tools: Vec<RawJson> = tools.iter().map(|tool| tool.listed(format)).collect();
            let tools: Vec<&[u8]> = tools.iter().map(RawJson::as_bytes).collect();
            let text = tools.join(&b',');
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            ListPart { text: text.into(), digest: hasher.finish() }
        })
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::entry::ToolEntry;
    use pegboard_core::id::{ServerName, ToolboxName};
    use pegboard_core::provider::{ServerOffering, ToolKind};

    use super::*;
    use crate::catalogue::ServerListing;
    use crate::drain::DrainCounter;
    use crate::names::DEFAULT_LIMIT;

    fn listing(toolbox: &str, server: &str, tool: &str) -> ServerListing {
        let tool = ToolEntry::from_fn(tool, "", |value: serde_json::Value| async move { Ok(value) });
        ServerListing {
            toolbox: ToolboxName::new(toolbox).unwrap(),
            server: ServerName::new(server).unwrap(),
            kind: ToolKind::Mcp,
            settings: Arc::default(),
            offer: Arc::new(ServerOffering { tools: vec![Arc::new(tool)], ..ServerOffering::default() }),
            is_known: true,
            drain_counter: DrainCounter::default(),
        }
    }

    #[test]
    fn a_rebuild_serializes_the_tools_of_changed_servers_only() {
        let part = |snapshot: &Snapshot, at: usize| -> *const u8 {
            snapshot.parts(ListFormat::default(), ToolboxScope::All).nth(at).unwrap().text.as_ptr()
        };
        let digest = |snapshot: &Snapshot| snapshot.list_digest(ListFormat::default(), ToolboxScope::All);
        let (a, b) = (listing("dev", "a", "one"), listing("dev", "b", "two"));
        let before = Snapshot::build(&[a.clone(), b.clone()], DEFAULT_LIMIT);
        let (a_before, b_before) = (part(&before, 0), part(&before, 1));

        let changed = before.rebuild(&[a.clone(), listing("dev", "b", "three")], DEFAULT_LIMIT);
        assert_eq!(part(&changed, 0), a_before);
        assert_ne!(part(&changed, 1), b_before);
        assert_ne!(digest(&changed), digest(&before));

        // The same tools in a new listing are serialized again, to the same list.
        let relisted = before.rebuild(&[a.clone(), listing("dev", "b", "two")], DEFAULT_LIMIT);
        assert_ne!(part(&relisted, 1), b_before);
        assert_eq!(digest(&relisted), digest(&before));

        // Another server of the same name changes the flat names of the first.
        let renamed = before.rebuild(&[a, b, listing("prod", "a", "one")], DEFAULT_LIMIT);
        assert_ne!(part(&renamed, 0), a_before);
        assert_eq!(part(&renamed, 1), b_before);
    }
}
