//! The lists of tools that clients are handed, written once and kept.

use std::sync::{Arc, OnceLock};

use pegboard_core::id::ToolboxName;
use pegboard_json::RawJson;

use super::{Scope, Snapshot, Tool};

/// How tools are written in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What they are called.
    pub form: Form,
    /// Which of them say what their answer looks like.
    pub output_schemas: OutputSchemas,
}

/// What tools are called in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// By their flat names.
    #[default]
    Flat,
    /// As their server calls them, with `server` and `toolbox` beside it.
    Toolbox,
}

/// Which tools in a list say what their answer looks like.
///
/// An answer that was cut or stored is not what its schema says, and a client may refuse it for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputSchemas {
    /// All that have a schema.
    #[default]
    Kept,
    /// Those whose own rules do not cap their answers.
    LeftOutWhereCapped,
    /// None.
    LeftOut,
}

impl Tool {
    /// The tool as a list has it: as its server wrote it, but for what the view changes.
    pub fn listed(&self, view: View) -> RawJson {
        let definition = self.entry.definition();
        let definition = match (view.output_schemas, self.rules.max_output) {
            (OutputSchemas::Kept, _) | (OutputSchemas::LeftOutWhereCapped, None) => definition,
            (OutputSchemas::LeftOutWhereCapped, Some(_)) | (OutputSchemas::LeftOut, _) => {
                definition.without("outputSchema")
            }
        };
        match view.form {
            Form::Flat => definition.with("name", &RawJson::of(&*self.flat_name)),
            Form::Toolbox => definition
                .with("server", &RawJson::of(&self.id.server))
                .with("toolbox", &RawJson::of(&self.id.toolbox)),
        }
    }
}

impl Snapshot {
    /// The tools of a scope as a JSON array, in order. What was written once is kept.
    ///
    /// ```
    /// # use pegboard_runtime::catalogue::{Scope, Snapshot, View};
    /// assert_eq!(Snapshot::default().list(View::default(), Scope::All).as_str(), "[]");
    /// ```
    pub fn list(&self, view: View, scope: Scope<'_>) -> RawJson {
        match scope {
            Scope::All => self.lists.get(view, self.tools.iter()),
            Scope::Only(has) => {
                let lists: Vec<RawJson> =
                    self.toolboxes().filter(|name| has(name)).map(|name| self.list_of(name, view)).collect();
                match &lists[..] {
                    [list] => list.clone(),
                    lists => joined(lists),
                }
            }
        }
    }

    fn list_of(&self, name: &ToolboxName, view: View) -> RawJson {
        self.toolboxes
            .get(name)
            .map_or_else(|| joined(&[]), |toolbox| toolbox.lists.get(view, self.tools_of(name)))
    }
}

/// The lists of some tools, one for each view.
#[derive(Debug, Default)]
pub(super) struct Lists([[OnceLock<RawJson>; 3]; 2]);

impl Lists {
    fn get<'t>(&self, view: View, tools: impl Iterator<Item = &'t Arc<Tool>>) -> RawJson {
        let list = &self.0[view.form as usize][view.output_schemas as usize];
        list.get_or_init(|| array(tools.map(|tool| tool.listed(view)))).clone()
    }
}

fn array(items: impl Iterator<Item = RawJson>) -> RawJson {
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

/// One array of the items of several that were written here.
fn joined(lists: &[RawJson]) -> RawJson {
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
