//! Glob patterns for files: `*` and `?` within a name, `**` for any number of directories.

use std::path::{Component, Path, PathBuf};

use pegboard_core::text::matches_glob;

/// Maximum number of directory entries visited for one pattern.
const MAX_VISITED: usize = 20_000;
/// Maximum depth of `**`.
const MAX_DEPTH: usize = 16;

/// Returns `true` if the text is a pattern rather than a plain path.
pub(crate) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns all files that match a pattern, sorted. Hidden files and directories match only patterns that
/// start with a dot, and `**` does not follow symbolic links.
pub(crate) fn matching_files(folder: &Path, glob: &str) -> Result<Vec<PathBuf>, TooManyFiles> {
    let mut start = folder.to_owned();
    let mut parts = Vec::new();
    for component in Path::new(glob).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir if parts.is_empty() => start.push(".."),
            Component::ParentDir => parts.push("..".to_owned()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => start.push(component),
        }
    }
    let mut search = GlobSearch { found: Vec::new(), n_visited: 0 };
    search.walk(&start, &parts, 0)?;
    search.found.sort();
    search.found.dedup();
    Ok(search.found)
}

/// Too many directory entries to visit for one pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyFiles;

struct GlobSearch {
    found: Vec<PathBuf>,
    n_visited: usize,
}

impl GlobSearch {
    fn walk(&mut self, folder: &Path, parts: &[String], depth: usize) -> Result<(), TooManyFiles> {
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
        if !is_glob(part) {
            return self.visit(folder.join(part), rest, depth);
        }
        let matches_name =
            |name: &str| (part.starts_with('.') || !name.starts_with('.')) && matches_glob(part, name);
        for path in self.entries(folder, matches_name)? {
            self.visit(path, rest, depth)?;
        }
        Ok(())
    }

    fn visit(&mut self, path: PathBuf, rest: &[String], depth: usize) -> Result<(), TooManyFiles> {
        if rest.is_empty() {
            if path.is_file() {
                self.found.push(path);
            }
            return Ok(());
        }
        self.walk(&path, rest, depth)
    }

    /// Returns the entries of a directory with a matching name. An unreadable directory is treated as empty.
    fn entries(
        &mut self,
        folder: &Path,
        matches_name: impl Fn(&str) -> bool,
    ) -> Result<Vec<PathBuf>, TooManyFiles> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            self.n_visited += 1;
            if self.n_visited > MAX_VISITED {
                return Err(TooManyFiles);
            }
            if matches_name(&entry.file_name().to_string_lossy()) {
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
    fn a_pattern_matches_files() {
        let folder = tempfile::tempdir().expect("there is room");
        for path in ["a.md", "b.ai", "in/c.md", "in/deep/d.md", ".hidden/e.md", "in/.f.md"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("there is room");
            std::fs::write(path, "").expect("there is room");
        }
        for (glob, expected) in [
            ("*.md", &["a.md"][..]),
            ("?.*", &["a.md", "b.ai"]),
            ("**/*.md", &["a.md", "in/c.md", "in/deep/d.md"]),
            ("in/**/d.md", &["in/deep/d.md"]),
            ("*/*.md", &["in/c.md"]),
            (".hidden/*.md", &[".hidden/e.md"]),
            ("./in/../*.ai", &["in/../b.ai"]),
            ("*/nothing*", &[]),
        ] {
            let found = matching_files(folder.path(), glob).expect("there are few");
            let found: Vec<_> =
                found.iter().map(|path| path.strip_prefix(folder.path()).expect("it is inside")).collect();
            assert_eq!(found, expected.iter().map(Path::new).collect::<Vec<_>>(), "{glob}");
        }
    }
}
