//! Behaviour shared by all engines.

mod agreement;
mod cache;
mod call_log;
mod catalogue;
mod credentials;
mod engine;
mod outputs;
mod sessions;
mod slots;
