//! Agents that request many long files at once and read the responses slowly.

use std::fs;
use std::process::Command;

use crate::client::reason;
use crate::server::{PARLOR, connect, figures, peak_memory, test_dir};

/// How many files an agent requests at once, and the size of each.
const FILES: usize = 30;
const LENGTH: usize = 8 << 20;

/// How much memory a server may need for that: the few files that it serves at a time, each as text, as JSON and as a
/// line for the agent, and what else it has. Without a limit, all files together take several times as much.
const MOST: u64 = 128 << 20;

/// An agent of version 1 that requests all files before it reads the first response, and ends its turn with the last one.
const AGENT: &str = r#"
id() { printf '%s' "$1" | sed 's/^{"jsonrpc":"2.0","id":\([^,]*\),.*/\1/'; }
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
read -r line
say "\"id\":$(id "$line"),\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{}}"
read -r line
say "\"id\":$(id "$line"),\"result\":{\"sessionId\":\"a\"}"
read -r line
prompt=$(id "$line")
n=0
while [ $n -lt FILES ]; do
    say "\"id\":\"read $n\",\"method\":\"fs/read_text_file\",\"params\":{\"sessionId\":\"a\",\"path\":\"PATH\"}"
    n=$((n + 1))
done
sleep 2
bytes=$(head -n FILES | wc -c)
say "\"method\":\"session/update\",\"params\":{\"sessionId\":\"a\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"$((bytes / LENGTH)) files\"}}}"
say "\"id\":$prompt,\"result\":{\"stopReason\":\"end_turn\"}"
cat > /dev/null
"#;

#[test]
fn many_long_files_are_read_in_bounded_memory() {
    let dir = test_dir();
    let (file, script) = (dir.path().join("long.txt"), dir.path().join("agent.sh"));
    fs::write(&file, "long ".repeat(LENGTH / 5)).unwrap();
    let agent = AGENT.replace("FILES", &FILES.to_string()).replace("LENGTH", &LENGTH.to_string());
    fs::write(&script, agent.replace("PATH", file.to_str().unwrap())).unwrap();
    let dir = dir.agent("reader", &format!("sh {}", script.display()));
    // The allocator returns long buffers at once, so that the peak is what the server holds.
    let mut command = Command::new(PARLOR);
    command.env("MALLOC_MMAP_THRESHOLD_", "1048576");
    let server = dir.serve_with(command);
    let mut client = connect(&server);
    client.new_session().unwrap();
    assert_eq!(reason(&client.turn("read them")), "end_turn");
    assert_eq!(client.agent_text(), format!("{FILES} files"), "every answer arrived");
    let peak = peak_memory(&server);
    figures(&format!(
        "{FILES} files of {} MiB: peak memory {:?} MiB",
        LENGTH >> 20,
        peak.map(|bytes| bytes >> 20)
    ));
    assert!(peak.is_none_or(|bytes| bytes < MOST), "{peak:?} bytes");
}
