//! How clients see everything: one catalogue, several views of it.
//!
//! From the outside in:
//!
//! - [`api`]: the gateway for people and programs beside its clients, as plain JSON;
//! - [`serve`]: a gateway over stdio and over HTTP; [`token`]: who may come over HTTP;
//! - [`Gateway`]: a runtime and the profiles that clients may choose from;
//! - `endpoint`: one profile as a service of the protocol, for clients of both eras;
//! - `surface`: what such a profile lists and what a call of it means, a file for each;
//! - `meta`: the few tools that find and call all others, a file for each;
//! - `agents`: every server under the name that it has as an agent, and its tools as modes;
//! - `library` and `extras`: prompts, resources and what else there is beside tools;
//! - `visit`: one request, from the client's call to the runtime's and back.

mod agents;
pub mod api;
mod endpoint;
mod extras;
mod gateway;
mod instructions;
mod library;
mod meta;
mod profile;
mod result;
pub mod serve;
mod sessions;
mod surface;
mod tasks;
pub mod token;
mod visit;
mod warming;

pub use gateway::{Gateway, ProfileError, Views};
pub use meta::meta_tools;
