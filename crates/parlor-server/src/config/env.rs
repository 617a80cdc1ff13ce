use std::collections::BTreeMap;

use super::AgentConfig;

/// The default of `pass_env`: variables that programs need to run, and those that select accounts and services.
pub const DEFAULT_PASS_ENV: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_*",
    "TZ",
    "TMPDIR",
    "XDG_*_HOME",
    "*_PROXY",
    "*_proxy",
    "SSL_CERT_*",
    "NODE_EXTRA_CA_CERTS",
    "*_API_KEY",
    "*_AUTH_TOKEN",
    "*_BASE_URL",
    "*_MODEL",
];

/// Variables that most programs need: the server's are used if the client does not have them.
const NEEDED: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];

/// The environment of an agent's process, sorted by name. Sessions with equal environments share a process.
///
/// It consists of the client's variables that `pass_env` allows (the server's, if the client sent none, as browsers do) and of
/// the variables of the configuration, which take precedence.
pub fn chosen_env(agent: &AgentConfig, client_env: &[(String, String)]) -> Vec<(String, String)> {
    let server_env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect::<Vec<_>>();
    chosen_env_from(agent, client_env, &server_env)
}

/// [`chosen_env`] with an explicit environment of the server.
pub fn chosen_env_from(
    agent: &AgentConfig,
    client_env: &[(String, String)],
    server_env: &[(String, String)],
) -> Vec<(String, String)> {
    let passes = |name: &str| agent.pass_env.iter().any(|pattern| matches(pattern, name));
    let mut chosen = BTreeMap::new();
    for (name, value) in server_env {
        if NEEDED.contains(&name.as_str()) || (client_env.is_empty() && passes(name)) {
            chosen.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in client_env {
        if passes(name) {
            chosen.insert(name.clone(), value.clone());
        }
    }
    chosen.extend(agent.env.clone());
    chosen.into_iter().collect()
}

/// Whether a name matches a pattern in which `*` stands for any characters, or none.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(found) => rest = &rest[found + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
