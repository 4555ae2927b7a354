//! Which tools of a server may be seen and called.

use std::collections::HashSet;

use pegboard_core::text::is_like;

/// Lists of names and globs. What is denied is out, whatever else says otherwise.
///
/// A name matches in any case, but where a tool has exactly the spelling of an entry, the entry means that tool and
/// no other. `*` and `any` mean every tool.
///
/// ```
/// use pegboard_runtime::filter::ToolFilter;
///
/// let filter = ToolFilter::allowing(["alphaTool", "GAMMAtool", "x_*"]).denying(["betaTool"]);
/// let tools = ["alphaTool", "betaTool", "gammaTool", "x_1", "other"];
/// assert_eq!(filter.permitted(&tools), ["alphaTool", "gammaTool", "x_1"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// `None` means every tool.
    allowed: Option<Vec<String>>,
    denied: Vec<String>,
}

impl ToolFilter {
    /// Every tool.
    pub fn everything() -> Self {
        Self::default()
    }

    /// The tools on this list, and none if it is empty.
    pub fn allowing(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { allowed: Some(names.into_iter().map(Into::into).collect()), denied: Vec::new() }
    }

    /// The filter without the tools on this list.
    #[must_use]
    pub fn denying(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.denied.extend(names.into_iter().map(Into::into));
        self
    }

    /// The tools that pass, in their order.
    pub fn permitted<'t>(&self, tools: &[&'t str]) -> Vec<&'t str> {
        let filter = self.among(tools.iter().copied());
        tools.iter().copied().filter(|tool| filter.permits(tool)).collect()
    }

    /// The filter made ready for all tools of a server, so that each of them is looked up.
    ///
    /// ```
    /// use pegboard_runtime::filter::ToolFilter;
    ///
    /// let filter = ToolFilter::allowing(["Read"]);
    /// assert!(filter.among(["read", "write"]).permits("read"));
    /// assert!(!filter.among(["read", "Read"]).permits("read"));
    /// ```
    pub fn among<'t>(&self, all: impl IntoIterator<Item = &'t str>) -> ReadyFilter<'_> {
        let all: HashSet<&str> = all.into_iter().collect();
        ReadyFilter {
            allowed: self.allowed.as_deref().map(|names| ReadyList::new(names, &all)),
            denied: ReadyList::new(&self.denied, &all),
        }
    }
}

/// A filter made ready for all tools of a server.
#[derive(Debug)]
pub struct ReadyFilter<'f> {
    allowed: Option<ReadyList<'f>>,
    denied: ReadyList<'f>,
}

impl ReadyFilter<'_> {
    /// Whether a tool of the server passes.
    pub fn permits(&self, tool: &str) -> bool {
        self.allowed.as_ref().is_none_or(|list| list.has(tool)) && !self.denied.has(tool)
    }
}

/// The entries of a list, by how they match.
#[derive(Debug, Default)]
struct ReadyList<'f> {
    has_everything: bool,
    exact: HashSet<&'f str>,
    /// In lower case: the entries that no tool is spelled like.
    any_case: HashSet<String>,
    /// In lower case.
    globs: Vec<String>,
}

impl<'f> ReadyList<'f> {
    fn new(entries: &'f [String], all: &HashSet<&str>) -> Self {
        let mut list = Self::default();
        for entry in entries {
            list.exact.insert(entry);
            if entry == "*" || entry.eq_ignore_ascii_case("any") {
                list.has_everything = true;
            } else if entry.contains(['*', '?']) {
                list.globs.push(entry.to_lowercase());
            } else if !all.contains(entry.as_str()) {
                list.any_case.insert(entry.to_lowercase());
            }
        }
        list
    }

    fn has(&self, tool: &str) -> bool {
        if self.has_everything || self.exact.contains(tool) {
            return true;
        }
        if self.any_case.is_empty() && self.globs.is_empty() {
            return false;
        }
        let lower = tool.to_lowercase();
        self.any_case.contains(&lower) || self.globs.iter().any(|pattern| is_like(pattern, &lower))
    }
}
