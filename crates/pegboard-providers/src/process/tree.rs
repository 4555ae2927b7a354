//! A program and everything it started, found and ended.

#[cfg(unix)]
mod table;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use self::unix::Tree;
#[cfg(windows)]
pub(super) use self::windows::Tree;
