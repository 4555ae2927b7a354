//! Test servers and clients. For development only.

pub mod authorization_server;
pub mod cli;
pub mod echo_server;
pub mod example;
pub mod explorer;
pub mod fixture;
#[cfg(unix)]
pub mod hostile;
pub mod hostile_text;
#[cfg(unix)]
pub mod measure;
pub mod model_server;
pub mod proxy;
pub mod recorder;
pub mod remote_server;
#[cfg(unix)]
pub mod scripted_server;
pub mod serve;
pub mod tls;
