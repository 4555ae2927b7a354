//! Consent to what configuration files start: the actions of a file, its owner, and the record of trusted files.
//!
//! [`load_layers`](crate::load_layers) lists the [`FileAction`]s of every file. The actions of a
//! [project](FileOrigin::Project) file must not be used until the user has agreed to them; a [`TrustStore`]
//! remembers that. [`ApprovedConfiguration`] does the same for changes of a running
//! configuration.

mod action;
mod held;
mod origins;
mod owner;
mod setting_effect;
mod store;

pub use action::{ActionKind, ActionTarget, FileAction};
pub(crate) use action::{FileActions, actions_of};
pub use held::{ApprovedConfiguration, HeldChange, HeldReason};
pub(crate) use origins::origin;
pub use owner::{FileOwner, UnsafeFileReason};
pub use store::{TrustError, TrustStore, TrustedAction, TrustedFile};

/// The way in which a file became part of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrigin {
    /// A file in the user's own directories, for all projects.
    User,
    /// A file found in a project directory, which may come from someone else.
    Project,
    /// A file that the user named.
    Named,
}
