//! Serialized tool lists, cached per snapshot.

use std::sync::{Arc, OnceLock};

use pegboard_core::id::ToolboxName;
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
    /// Returns the tools of a scope as a JSON array, in order. The result is cached.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::{ToolboxScope, Snapshot, ListFormat};
    /// assert_eq!(Snapshot::default().list(ListFormat::default(), ToolboxScope::All).as_str(), "[]");
    /// ```
    pub fn list(&self, view: ListFormat, scope: ToolboxScope<'_>) -> RawJson {
        match scope {
            ToolboxScope::All => self.lists.get(view, self.tools.iter()),
            ToolboxScope::Only(has) => {
                let lists: Vec<RawJson> =
                    self.toolboxes().filter(|name| has(name)).map(|name| self.list_of(name, view)).collect();
                match &lists[..] {
                    [list] => list.clone(),
                    lists => concatenate(lists),
                }
            }
        }
    }

    fn list_of(&self, name: &ToolboxName, view: ListFormat) -> RawJson {
        self.toolboxes
            .get(name)
            .map_or_else(|| concatenate(&[]), |toolbox| toolbox.lists.get(view, self.tools_of(name)))
    }
}

/// Cached lists of one set of tools, one per format.
#[derive(Debug, Default)]
pub(super) struct ListCache([[OnceLock<RawJson>; 3]; 2]);

impl ListCache {
    fn get<'t>(&self, view: ListFormat, tools: impl Iterator<Item = &'t Arc<CatalogueTool>>) -> RawJson {
        let list = &self.0[view.name_style as usize][view.output_schemas as usize];
        list.get_or_init(|| serialize_array(tools.map(|tool| tool.listed(view)))).clone()
    }
}

fn serialize_array(items: impl Iterator<Item = RawJson>) -> RawJson {
    let mut text = vec![b'['];
    for item in items {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(item.as_bytes());
    }
    text.push(b']');
    RawJson::trusted(text.into())
}

/// Concatenates arrays that were serialized by this module.
fn concatenate(lists: &[RawJson]) -> RawJson {
    let mut text = vec![b'['];
    for list in lists {
        let items = &list.as_bytes()[1..list.as_bytes().len() - 1];
        if text.len() > 1 && !items.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(items);
    }
    text.push(b']');
    RawJson::trusted(text.into())
}
