//! Decodes the hello of a client.

#[cfg(feature = "http")]
use parlor_dialect::Dialect;
pub use parlor_wire::hello::{Agent, Hello, VERSION, Welcome};

#[cfg(feature = "http")]
use crate::hub::{AgentChoice, ClientRole, ConnectOptions, TransportKind};

/// The client that sends this hello.
#[cfg(feature = "http")]
pub(super) fn to_options(hello: Hello) -> Result<ConnectOptions, String> {
    let dialect = hello.dialect.as_deref().map(str::parse::<Dialect>).transpose();
    let role = if hello.observer { ClientRole::Observer } else { ClientRole::Driver };
    Ok(ConnectOptions {
        agent: hello.agent.map(|agent| match agent {
            Agent::Name(name) => AgentChoice::Named(name),
            Agent::Command(command) => AgentChoice::Command(command),
        }),
        dialect: dialect.map_err(|error| error.to_string())?,
        env: hello.env,
        cwd: hello.cwd,
        name: hello.name,
        ..ConnectOptions::new(TransportKind::Unix, role)
    })
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn a_hello_describes_the_client() {
        let agent = Some(Agent::Command(vec!["a".into(), "b c".into()]));
        let options = to_options(Hello { agent, dialect: Some("draft".into()), ..Hello::new() }).unwrap();
        assert_eq!(options.agent, Some(AgentChoice::Command(vec!["a".into(), "b c".into()])));
        assert_eq!((options.dialect, options.role), (Some(Dialect::Draft), ClientRole::Driver));
        assert_eq!(to_options(Hello { observer: true, ..Hello::new() }).unwrap().role, ClientRole::Observer);
        let unknown = Hello { dialect: Some("v9".into()), ..Hello::new() };
        assert!(to_options(unknown).unwrap_err().contains("v9"));
    }
}
