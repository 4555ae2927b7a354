//! A program and its descendants.

#[cfg(unix)]
mod table;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use self::unix::ProcessTree;
#[cfg(windows)]
pub(super) use self::windows::ProcessTree;
