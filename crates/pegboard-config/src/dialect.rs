//! Whose words a file uses, and what they mean. Each dialect has a file of its own.

use std::path::Path;

use crate::path::Path as Way;
use crate::read::Reader;
use crate::tree::{Node, Span};

mod agents;
pub(crate) mod native;
mod openapi;
mod providers;
mod rest;
mod server;
mod workbench;

pub(crate) use native::{root_names, toolbox_names};

/// Whose words a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Our own, which many clients share as far as `mcpServers` goes.
    Native,
    /// That of a workbench: toolboxes, each with a description and servers.
    Workbench,
}

impl Dialect {
    /// The dialect of a file: by what is in it, and by its name only where that leaves it open.
    pub(crate) fn of(path: &Path, root: &Node) -> Self {
        if is_ours(path, root) {
            Self::Native
        } else if is_named(path, "workbench") || workbench::is_one(root) {
            Self::Workbench
        } else {
            Self::Native
        }
    }

    /// What its root is called in messages.
    pub(crate) fn label(self) -> Way {
        match self {
            Self::Native => Way::default(),
            Self::Workbench => Way::default().key("config"),
        }
    }

    /// The same in our own words. Every value keeps its place.
    pub(crate) fn translate(self, root: Node, remarks: &mut Remarks) -> Node {
        match self {
            Self::Native => root,
            Self::Workbench => workbench::translate(root, remarks),
        }
    }
}

/// Whether a file says that it is ours, by its name or in its first words.
pub(crate) fn is_ours(path: &Path, root: &Node) -> bool {
    is_named(path, "pegboard") || root.get("pegboard").is_some()
}

fn is_named(path: &Path, beginning: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    name.strip_prefix(beginning).is_some_and(|rest| rest.starts_with(['.', '-']))
}

/// What is worth saying about a file before anything of it is read, in the order in which it was found.
#[derive(Default)]
pub(crate) struct Remarks(Vec<Remark>);

/// One thing that is worth saying.
pub(crate) struct Remark {
    pub(crate) kind: RemarkKind,
    pub(crate) span: Span,
    /// The way to what it is about.
    pub(crate) way: Way,
}

/// What is said.
pub(crate) enum RemarkKind {
    /// Something for which nothing of the configuration can be used.
    Error { message: String, help: Option<String> },
    /// Something that changes nothing.
    Warning { message: String, help: Option<String> },
    /// A key that nobody knows, and those that may stand there.
    Unknown { key: String, known: Vec<String> },
}

impl Remarks {
    /// Says what nothing of the configuration can be used for.
    pub(crate) fn error(&mut self, span: Span, way: &Way, message: impl Into<String>, help: Option<String>) {
        let kind = RemarkKind::Error { message: message.into(), help };
        self.0.push(Remark { kind, span, way: way.clone() });
    }

    /// Says what changes nothing.
    pub(crate) fn warn(&mut self, span: Span, way: &Way, message: impl Into<String>, help: Option<String>) {
        let kind = RemarkKind::Warning { message: message.into(), help };
        self.0.push(Remark { kind, span, way: way.clone() });
    }

    /// Says of a key that nobody knows it.
    pub(crate) fn unknown(&mut self, key: &str, span: Span, way: &Way, known: &[&str]) {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        self.0.push(Remark {
            kind: RemarkKind::Unknown { key: key.to_owned(), known },
            span,
            way: way.clone(),
        });
    }

    /// Hands all of it to whoever reads on.
    pub(crate) fn tell(self, reader: &mut Reader<'_>) {
        for Remark { kind, span, way } in self.0 {
            match kind {
                RemarkKind::Error { message, help } => reader.error(span, &way, message, help),
                RemarkKind::Warning { message, help } => reader.warn(span, &way, message, help),
                RemarkKind::Unknown { key, known } => {
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    reader.unknown_key(&key, span, &way, &known);
                }
            }
        }
    }
}
