//! What the server stores of a session beside its transcript and the columns that lists filter by.

use parlor_dialect::Dialect;
use parlor_json::{Json, JsonRef, JsonStr, Object};
use std::borrow::Cow;

use crate::opening::RefusedSettings;
use crate::rows::SessionRow;
use crate::summary::SessionSummary;

/// The typed form of [`SessionRow::data`].
///
/// Members that this version does not know are kept in `other`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionData {
    /// The params with which a client created the session, without `cwd` and `_meta`.
    pub params: Object,
    /// The dialect of `params`.
    pub params_dialect: Option<Dialect>,
    /// The dialect of the agent when the session was last written.
    pub agent_dialect: Option<Dialect>,
    /// The command line of an agent that is not configured by name.
    pub command: Option<Vec<String>>,
    /// The title that was generated from the first prompt.
    pub generated_title: Option<JsonStr>,
    /// The agent's time of the last activity, unless something happened since.
    pub agent_updated_at: Option<JsonStr>,
    /// The message at which the session was forked from its parent.
    pub forked_at: Option<JsonStr>,
    /// How many entries and how many messages a fork was created with.
    pub forked_counts: Option<(u64, u64)>,
    /// The agents that wrote the beginning of the conversation, if other ones than the present one did.
    pub earlier_agents: Vec<EarlierAgent>,
    /// Whether the agent session was opened without the conversation and was not given it yet.
    pub needs_context: bool,
    /// How many entries the conversation had that the agent was given.
    pub context_entries: Option<usize>,
    /// Whether only the agent named the working directory: the server serves no files there.
    pub is_cwd_unconfirmed: bool,
    /// The settings that the agent refused, as [`RefusedSettings::to_json`] writes them.
    pub refused_settings: Option<Json>,
    /// What lists show of the session.
    pub summary: SessionSummary,
    /// Members that are not listed above.
    pub other: Object,
}

/// An agent that wrote a part of a conversation before another one continued it in a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierAgent {
    /// Its name.
    pub name: String,
    /// How many messages the conversation had when the next agent continued it.
    pub messages: usize,
}

mod key {
    pub(super) const PARAMS: &str = "params";
    pub(super) const PARAMS_DIALECT: &str = "dialect";
    pub(super) const AGENT_DIALECT: &str = "agentDialect";
    pub(super) const COMMAND: &str = "command";
    pub(super) const GENERATED_TITLE: &str = "generatedTitle";
    pub(super) const AGENT_UPDATED_AT: &str = "updatedAt";
    pub(super) const FORKED_AT: &str = "forkedAt";
    pub(super) const FORKED_COUNTS: &str = "forkedCounts";
    pub(super) const EARLIER_AGENTS: &str = "earlierAgents";
    pub(super) const NEEDS_CONTEXT: &str = "needsContext";
    pub(super) const CONTEXT_ENTRIES: &str = "contextEntries";
    pub(super) const IS_CWD_UNCONFIRMED: &str = "isCwdUnconfirmed";
    pub(super) const REFUSED_SETTINGS: &str = "refusedSettings";
    pub(super) const SUMMARY: &str = "summary";
}

impl SessionData {
    /// Reads the data of a row. Members of the wrong type count as missing.
    pub fn of(row: &SessionRow) -> Self {
        let mut data = JsonRef::parse(&row.data).ok().and_then(JsonRef::to_object).unwrap_or_default();
        let mut take = |name: &str| data.remove(name);
        let string = |value: Json| value.to_json_str();
        let dialect = |value: Json| string(value)?.to_text().parse().ok();
        Self {
            params: take(key::PARAMS).and_then(|params| params.to_object()).unwrap_or_default(),
            params_dialect: take(key::PARAMS_DIALECT).and_then(dialect),
            agent_dialect: take(key::AGENT_DIALECT).and_then(dialect),
            command: take(key::COMMAND).and_then(|words| strings(&words)),
            generated_title: take(key::GENERATED_TITLE).and_then(string),
            agent_updated_at: take(key::AGENT_UPDATED_AT).and_then(string),
            forked_at: take(key::FORKED_AT).and_then(string),
            forked_counts: take(key::FORKED_COUNTS).and_then(|counts| {
                let counts = counts.elements()?;
                Some((counts.first()?.as_u64()?, counts.get(1)?.as_u64()?))
            }),
            earlier_agents: take(key::EARLIER_AGENTS)
                .and_then(|agents| agents.elements()?.into_iter().map(EarlierAgent::of).collect())
                .unwrap_or_default(),
            needs_context: take(key::NEEDS_CONTEXT).is_some(),
            context_entries: take(key::CONTEXT_ENTRIES)
                .and_then(|count| usize::try_from(count.as_u64()?).ok()),
            is_cwd_unconfirmed: take(key::IS_CWD_UNCONFIRMED).is_some(),
            refused_settings: take(key::REFUSED_SETTINGS),
            summary: take(key::SUMMARY)
                .and_then(|summary| summary.to_object())
                .map(|summary| SessionSummary::of(&summary))
                .unwrap_or_default(),
            other: data,
        }
    }

    /// The data as the text of a row.
    pub fn to_text(&self) -> String {
        let Self { params, generated_title, agent_updated_at, forked_at, refused_settings, .. } = self;
        let dialect = |dialect: Dialect| Json::from(dialect.name());
        let literal = |text: &JsonStr| Json::from(text);
        let flag = |is_set: bool| is_set.then(|| Json::from(true));
        let summary = self.summary.to_object();
        let members = [
            (key::PARAMS, (!params.is_empty()).then(|| params.to_json())),
            (key::PARAMS_DIALECT, self.params_dialect.map(dialect)),
            (key::AGENT_DIALECT, self.agent_dialect.map(dialect)),
            (key::COMMAND, self.command.as_ref().map(|words| Json::array(words.iter().map(Json::from)))),
            (key::GENERATED_TITLE, generated_title.as_ref().map(literal)),
            (key::AGENT_UPDATED_AT, agent_updated_at.as_ref().map(literal)),
            (key::FORKED_AT, forked_at.as_ref().map(literal)),
            (
                key::FORKED_COUNTS,
                self.forked_counts.map(|(entries, messages)| Json::array([entries, messages])),
            ),
            (key::EARLIER_AGENTS, EarlierAgent::list_to_json(&self.earlier_agents)),
            (key::NEEDS_CONTEXT, flag(self.needs_context)),
            (key::CONTEXT_ENTRIES, self.context_entries.map(Json::from)),
            (key::IS_CWD_UNCONFIRMED, flag(self.is_cwd_unconfirmed)),
            (key::REFUSED_SETTINGS, refused_settings.clone()),
            (key::SUMMARY, (!summary.is_empty()).then(|| summary.to_json())),
        ];
        let mut data = Object::default();
        for (name, value) in members {
            if let Some(value) = value {
                data.set(name, value);
            }
        }
        data.add_missing(&self.other);
        data.text()
    }

    /// The dialect in which [`params`](Self::params) are written.
    pub fn params_dialect(&self) -> Dialect {
        self.params_dialect.unwrap_or(Dialect::V2)
    }

    /// The directories of the session besides its working directory.
    pub fn additional_directories(&self) -> Option<&Json> {
        self.params.get("additionalDirectories")
    }

    /// Stores the settings that the agent refused.
    pub fn set_refused(&mut self, refused: Option<&RefusedSettings>) {
        self.refused_settings = refused.map(RefusedSettings::to_json);
    }

    /// Sets the title of a row and of its data. A generated title is not a title for the store: search finds the prompt that
    /// it was generated from.
    pub fn set_title(&mut self, row: &mut SessionRow, title: Option<&JsonStr>, is_generated: bool) {
        row.title = title.filter(|_| !is_generated).map(|title| title.as_literal().to_owned());
        self.generated_title = title.filter(|_| is_generated).cloned();
    }
}

impl EarlierAgent {
    /// Reads an element of [`list_to_json`](Self::list_to_json).
    fn of(agent: JsonRef<'_>) -> Option<Self> {
        let agent = agent.to_object()?;
        let messages = usize::try_from(agent.get_u64("messages")?).ok()?;
        Some(Self { name: agent.get_string("name")?, messages })
    }

    /// The agents as they are stored and sent to clients; `None` if there are none.
    pub fn list_to_json(agents: &[Self]) -> Option<Json> {
        let agent =
            |agent: &Self| Object::new().with("name", &agent.name).with("messages", agent.messages).to_json();
        (!agents.is_empty()).then(|| Json::array(agents.iter().map(agent)))
    }

    /// Those of a fork that has the first `messages` messages.
    pub(crate) fn in_fork(agents: &[Self], messages: usize) -> Vec<Self> {
        let before = |index: usize| index.checked_sub(1).map_or(0, |index| agents[index].messages);
        let wrote = agents.iter().enumerate().take_while(|(index, _)| before(*index) < messages);
        wrote
            .map(|(_, agent)| Self { name: agent.name.clone(), messages: agent.messages.min(messages) })
            .collect()
    }
}

/// The title of a session: its own, else the generated one.
pub fn title(row: &SessionRow) -> Option<JsonStr> {
    match &row.title {
        Some(title) => JsonStr::from_literal(title),
        None => SessionData::of(row).generated_title,
    }
}

fn strings(array: &Json) -> Option<Vec<String>> {
    array.elements()?.into_iter().map(|word| word.to_text().map(Cow::into_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(data: &str) -> SessionRow {
        SessionRow { data: data.to_owned(), ..SessionRow::default() }
    }

    #[test]
    fn data_is_written_as_it_was_read_with_members_of_other_versions() {
        let text = concat!(
            r#"{"params":{"mcpServers":[],"big":123456789012345678901234567890},"dialect":"v1","agentDialect":"v2","#,
            r#""command":["a b","\"c\""],"generatedTitle":"half \ud83d","updatedAt":"2026-01-01T00:00:00Z","forkedAt":"m","#,
            r#""earlierAgents":[{"name":"claude","messages":4}],"needsContext":true,"contextEntries":7,"isCwdUnconfirmed":true,"#,
            r#""refusedSettings":[{"setting":"mode","value":"code"}],"#,
            r#""summary":{"lastPromptAt":1,"lastTurnEndedAt":2,"lastTurnSeq":4,"seenSeq":3,"hasFailed":true,"mode":"ask","model":"m","usage":{"used":3}},"later":{"x":1.0}}"#
        );
        let data = SessionData::of(&row(text));
        assert_eq!(data.command.as_deref(), Some(&["a b".to_owned(), "\"c\"".to_owned()][..]));
        assert_eq!((data.needs_context, data.context_entries), (true, Some(7)));
        assert_eq!(data.params_dialect(), Dialect::V1);
        assert_eq!(data.to_text(), text);
        assert_eq!(SessionData::default().to_text(), "{}");
    }

    #[test]
    fn a_fork_has_the_agents_that_wrote_its_messages() {
        let agent = |(name, messages): (&str, usize)| EarlierAgent { name: name.to_owned(), messages };
        let agents = [("claude", 4), ("codex", 6)].map(agent);
        for (messages, expected) in [
            (0, vec![]),
            (3, vec![("claude", 3)]),
            (4, vec![("claude", 4)]),
            (5, vec![("claude", 4), ("codex", 5)]),
            (9, vec![("claude", 4), ("codex", 6)]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(agent).collect();
            assert_eq!(EarlierAgent::in_fork(&agents, messages), expected, "{messages}");
        }
    }

    #[test]
    fn data_that_cannot_be_read_counts_as_missing() {
        for text in ["", "[]", r#"{"command":[1],"dialect":"v9","generatedTitle":7,"params":[]}"#] {
            assert_eq!(SessionData::of(&row(text)), SessionData::default(), "{text}");
        }
    }

    #[test]
    fn a_generated_title_is_no_title_for_the_store() {
        let mut row = row("{}");
        let mut data = SessionData::of(&row);
        let name = JsonStr::new("a title");
        for is_generated in [true, false] {
            data.set_title(&mut row, Some(&name), is_generated);
            row.data = data.to_text();
            assert_eq!(row.title.is_none(), is_generated);
            assert_eq!(title(&row).as_ref(), Some(&name));
        }
        data.set_title(&mut row, None, false);
        row.data = data.to_text();
        assert_eq!(title(&row), None);
    }
}
