//! Behaviour shared by all engines.

mod agreement;
mod cache;
mod catalogue;
mod engine;
mod history;
mod outputs;
mod sessions;
mod slots;
mod traces;
