//! Files by a pattern: `*` and `?` within a name, `**` for any number of folders.

use std::path::{Component, Path, PathBuf};

use pegboard_core::text::is_like;

/// How many files and folders are looked at for one pattern.
const MAX_LOOKED_AT: usize = 20_000;
/// How deep `**` goes.
const MAX_DEPTH: usize = 16;

/// Whether a text is a pattern rather than the path of one file.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// All files that a pattern names, in the order of their names. Hidden files and folders must be named as such, and
/// links to folders are not followed by `**`.
pub(crate) fn files(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, TooMany> {
    let mut start = folder.to_owned();
    let mut parts = Vec::new();
    for component in Path::new(pattern).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir if parts.is_empty() => start.push(".."),
            Component::ParentDir => parts.push("..".to_owned()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => start.push(component),
        }
    }
    let mut search = Search { found: Vec::new(), n_looked_at: 0 };
    search.walk(&start, &parts, 0)?;
    search.found.sort();
    search.found.dedup();
    Ok(search.found)
}

/// A pattern that too many files and folders have to be looked at for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

struct Search {
    found: Vec<PathBuf>,
    n_looked_at: usize,
}

impl Search {
    fn walk(&mut self, folder: &Path, parts: &[String], depth: usize) -> Result<(), TooMany> {
        let Some((part, rest)) = parts.split_first() else { return Ok(()) };
        if part == "**" {
            self.walk(folder, rest, depth)?;
            if depth < MAX_DEPTH {
                for path in self.entries(folder, |name| !name.starts_with('.'))? {
                    if path.is_dir() && !path.is_symlink() {
                        self.walk(&path, parts, depth + 1)?;
                    }
                }
            }
            return Ok(());
        }
        if !is_pattern(part) {
            return self.take(folder.join(part), rest, depth);
        }
        let suits = |name: &str| (part.starts_with('.') || !name.starts_with('.')) && is_like(part, name);
        for path in self.entries(folder, suits)? {
            self.take(path, rest, depth)?;
        }
        Ok(())
    }

    fn take(&mut self, path: PathBuf, rest: &[String], depth: usize) -> Result<(), TooMany> {
        if rest.is_empty() {
            if path.is_file() {
                self.found.push(path);
            }
            return Ok(());
        }
        self.walk(&path, rest, depth)
    }

    /// What of a folder has a name that suits. One that cannot be read has nothing.
    fn entries(&mut self, folder: &Path, suits: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, TooMany> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            self.n_looked_at += 1;
            if self.n_looked_at > MAX_LOOKED_AT {
                return Err(TooMany);
            }
            if suits(&entry.file_name().to_string_lossy()) {
                entries.push(entry.path());
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_files() {
        let folder = tempfile::tempdir().expect("there is room");
        for path in ["a.md", "b.ai", "in/c.md", "in/deep/d.md", ".hidden/e.md", "in/.f.md"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("there is room");
            std::fs::write(path, "").expect("there is room");
        }
        for (pattern, expected) in [
            ("*.md", &["a.md"][..]),
            ("?.*", &["a.md", "b.ai"]),
            ("**/*.md", &["a.md", "in/c.md", "in/deep/d.md"]),
            ("in/**/d.md", &["in/deep/d.md"]),
            ("*/*.md", &["in/c.md"]),
            (".hidden/*.md", &[".hidden/e.md"]),
            ("./in/../*.ai", &["in/../b.ai"]),
            ("*/nothing*", &[]),
        ] {
            let found = files(folder.path(), pattern).expect("there are few");
            let found: Vec<_> =
                found.iter().map(|path| path.strip_prefix(folder.path()).expect("it is inside")).collect();
            assert_eq!(found, expected.iter().map(Path::new).collect::<Vec<_>>(), "{pattern}");
        }
    }
}
