//! Allow and deny lists for the tools of a server.

use std::collections::HashSet;

use pegboard_core::text::matches_glob;

/// Lists of names and globs. Denied names take precedence.
///
/// Names match case-insensitively, unless a tool is spelled exactly like an entry: then the entry matches
/// that tool only. `*` and `any` match every tool.
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
    /// `None` allows every tool.
    allowed: Option<Vec<String>>,
    denied: Vec<String>,
}

impl ToolFilter {
    /// A filter that allows every tool.
    pub fn allow_all() -> Self {
        Self::default()
    }

    /// A filter that allows the listed tools; none if the list is empty.
    pub fn allowing(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { allowed: Some(names.into_iter().map(Into::into).collect()), denied: Vec::new() }
    }

    /// Adds tools to the deny list.
    #[must_use]
    pub fn denying(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.denied.extend(names.into_iter().map(Into::into));
        self
    }

    /// Returns the tools that pass, in order.
    pub fn permitted<'t>(&self, tools: &[&'t str]) -> Vec<&'t str> {
        let filter = self.compile(tools.iter().copied());
        tools.iter().copied().filter(|tool| filter.permits(tool)).collect()
    }

    /// Compiles the filter for all tools of a server, so that each lookup is cheap.
    ///
    /// ```
    /// use pegboard_runtime::filter::ToolFilter;
    ///
    /// let filter = ToolFilter::allowing(["Read"]);
    /// assert!(filter.compile(["read", "write"]).permits("read"));
    /// assert!(!filter.compile(["read", "Read"]).permits("read"));
    /// ```
    pub fn compile<'t>(&self, all: impl IntoIterator<Item = &'t str>) -> CompiledFilter<'_> {
        let all: HashSet<&str> = all.into_iter().collect();
        CompiledFilter {
            allowed: self.allowed.as_deref().map(|names| CompiledList::new(names, &all)),
            denied: CompiledList::new(&self.denied, &all),
        }
    }
}

/// A filter compiled for all tools of a server.
#[derive(Debug)]
pub struct CompiledFilter<'f> {
    allowed: Option<CompiledList<'f>>,
    denied: CompiledList<'f>,
}

impl CompiledFilter<'_> {
    /// Returns `true` if a tool of the server passes.
    pub fn permits(&self, tool: &str) -> bool {
        self.allowed.as_ref().is_none_or(|list| list.has(tool)) && !self.denied.has(tool)
    }
}

/// The entries of a list, by matching mode.
#[derive(Debug, Default)]
struct CompiledList<'f> {
    matches_all: bool,
    exact: HashSet<&'f str>,
    /// Lower-case entries that no tool matches exactly.
    case_insensitive: HashSet<String>,
    /// In lower case.
    globs: Vec<String>,
}

impl<'f> CompiledList<'f> {
    fn new(entries: &'f [String], all: &HashSet<&str>) -> Self {
        let mut list = Self::default();
        for entry in entries {
            list.exact.insert(entry);
            if entry == "*" || entry.eq_ignore_ascii_case("any") {
                list.matches_all = true;
            } else if entry.contains(['*', '?']) {
                list.globs.push(entry.to_lowercase());
            } else if !all.contains(entry.as_str()) {
                list.case_insensitive.insert(entry.to_lowercase());
            }
        }
        list
    }

    fn has(&self, tool: &str) -> bool {
        if self.matches_all || self.exact.contains(tool) {
            return true;
        }
        if self.case_insensitive.is_empty() && self.globs.is_empty() {
            return false;
        }
        let lower = tool.to_lowercase();
        self.case_insensitive.contains(&lower)
            || self.globs.iter().any(|pattern| matches_glob(pattern, &lower))
    }
}
