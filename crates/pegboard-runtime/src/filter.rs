//! Which tools of a server may be seen and called.

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
        tools.iter().copied().filter(|tool| self.permits(tool, tools)).collect()
    }

    /// Whether a tool passes, among all tools of its server.
    pub fn permits(&self, tool: &str, all: &[&str]) -> bool {
        let is_on = |list: &[String]| list.iter().any(|entry| matches(entry, tool, all));
        self.allowed.as_deref().is_none_or(is_on) && !is_on(&self.denied)
    }
}

fn matches(entry: &str, tool: &str, all: &[&str]) -> bool {
    if entry == "*" || entry.eq_ignore_ascii_case("any") || entry == tool {
        return true;
    }
    if entry.contains(['*', '?']) {
        return glob(entry.to_lowercase().as_bytes(), tool.to_lowercase().as_bytes());
    }
    entry.to_lowercase() == tool.to_lowercase() && !all.contains(&entry)
}

/// Whether a text matches a pattern of `*` and `?`, in time that grows with their product at most.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                last_star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match last_star {
                // The last star takes one more.
                Some((star, taken)) => {
                    last_star = Some((star, taken + 1));
                    p = star + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
