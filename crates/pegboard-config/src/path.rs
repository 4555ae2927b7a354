//! The way from the root of a file to a value: `mcpServers.github.args[0]`.

use std::fmt;

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The way to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    pub(crate) fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Whether this leads further the same way.
    pub(crate) fn is_inside(&self, other: &Self) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    pub(crate) fn join(&self, other: &Self) -> Self {
        self.then(&other.0)
    }

    pub(crate) fn then(&self, steps: &[Step]) -> Self {
        Self(self.0.iter().chain(steps).cloned().collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_plain(key) && at == 0 => f.write_str(key)?,
                Step::Key(key) if is_plain(key) => write!(f, ".{key}")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// Whether a key can stand between dots without being mistaken for two.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|each| each.is_alphanumeric() || matches!(each, '-' | '_' | '$'))
}
