//! What the turns of a session used: tokens, cost and time, by day.

use std::collections::BTreeMap;

use parlor_json::{Json, JsonRef, Object};
use parlor_session::State;

/// How many days of a session are kept apart. Earlier ones are counted with the first of them.
const MAX_DAYS: usize = 400;

/// How many currencies of a day are counted.
const MAX_CURRENCIES: usize = 8;

const MILLIS_PER_DAY: i64 = 86_400_000;

/// The kinds of tokens that agents report, by the names of the protocol.
pub const TOKEN_KINDS: [&str; 6] =
    ["inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "thoughtTokens", "totalTokens"];

/// The usage of a session, from the first turn that was recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionUsage {
    /// The days with turns or costs, the first one first.
    pub days: Vec<DayUsage>,
    /// The last counts of an agent that counts the whole session: the next ones include them.
    counted: Option<Tokens>,
    /// The last reported cost, which is that of the whole session.
    cost: Option<(String, f64)>,
    /// When the running turn started, in milliseconds since 1970. It is not stored.
    started_at: Option<i64>,
}

impl Eq for SessionUsage {}

/// The usage of one day.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DayUsage {
    /// The day, in days since 1970 (UTC).
    pub day: i64,
    /// How many turns ended.
    pub turns: u64,
    /// How many of them ended with token counts.
    pub counted_turns: u64,
    /// How long the turns ran, in milliseconds.
    pub millis: u64,
    /// The tokens of the counted turns.
    pub tokens: Tokens,
    /// The costs by currency; empty if the agent reported none.
    pub costs: BTreeMap<String, f64>,
}

/// Numbers of tokens, by kind; a kind that was not reported is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(pub BTreeMap<&'static str, u64>);

impl Tokens {
    /// Reads counts; `None` if there are none.
    fn of(counts: &Object) -> Option<Self> {
        let kinds = TOKEN_KINDS.into_iter();
        let tokens: BTreeMap<_, _> = kinds.filter_map(|kind| Some((kind, counts.get_u64(kind)?))).collect();
        (!tokens.is_empty()).then_some(Self(tokens))
    }

    /// Adds counts.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            let sum = self.0.entry(kind).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// The counts since earlier ones of the same session. If one of them is lower than before, the agent has started
    /// again from zero.
    fn since(&self, before: &Self) -> Self {
        let is_lower =
            |(kind, count): (&&str, &u64)| before.0.get(*kind).is_some_and(|before| count < before);
        if self.0.iter().any(is_lower) {
            return self.clone();
        }
        let since = |(kind, count): (&&'static str, &u64)| (*kind, count - before.0.get(kind).unwrap_or(&0));
        Self(self.0.iter().map(since).collect())
    }
}

mod key {
    pub(super) const DAYS: &str = "days";
    pub(super) const COUNTED: &str = "counted";
    pub(super) const COST: &str = "cost";
    pub(super) const DAY: &str = "day";
    pub(super) const TURNS: &str = "turns";
    pub(super) const COUNTED_TURNS: &str = "countedTurns";
    pub(super) const MILLIS: &str = "ms";
    pub(super) const TOKENS: &str = "tokens";
    pub(super) const COSTS: &str = "costs";
}

impl SessionUsage {
    /// The tokens of all turns that reported their sum; `None` if none did.
    pub fn total_tokens(&self) -> Option<u64> {
        let totals = self.days.iter().filter_map(|day| day.tokens.0.get("totalTokens"));
        totals.copied().reduce(u64::saturating_add)
    }

    /// Reads a usage. Members of the wrong type count as missing.
    pub fn of(object: &Object) -> Self {
        let day = |day: JsonRef<'_>| DayUsage::of(&day.to_object()?);
        let days = object.get_array(key::DAYS).unwrap_or_default().into_iter().filter_map(day).collect();
        let cost = object.get_object(key::COST).and_then(|costs| amounts(&costs).into_iter().next());
        let counted = object.get_object(key::COUNTED).and_then(|counts| Tokens::of(&counts));
        Self { days, counted, cost, started_at: None }
    }

    /// The usage as JSON; empty if nothing is known.
    pub fn to_object(&self) -> Object {
        let mut object = Object::default();
        if !self.days.is_empty() {
            object.set(key::DAYS, Json::array(self.days.iter().map(DayUsage::to_object)));
        }
        if let Some(counted) = &self.counted {
            object.set(key::COUNTED, tokens_object(counted));
        }
        if let Some((currency, amount)) = &self.cost {
            object.set(key::COST, amounts_object([(currency, amount)]));
        }
        object
    }

    /// The usage of a fork: no turns yet. An agent that forks its own session may continue to count from here.
    pub(crate) fn of_fork(&self) -> Self {
        Self { counted: self.counted.clone(), cost: self.cost.clone(), ..Self::default() }
    }

    /// A turn started.
    pub(crate) fn on_turn_started(&mut self, now: i64) {
        self.started_at = Some(now);
    }

    /// A turn ended in this state. `counts_session` says that the agent counts the tokens of the whole session.
    pub(crate) fn on_turn_ended(&mut self, state: &State, counts_session: bool, now: i64) {
        let reported = state.fields.get_object("usage").and_then(|counts| Tokens::of(&counts));
        let tokens = match (reported, counts_session) {
            (Some(tokens), true) => {
                let turn =
                    self.counted.as_ref().map_or_else(|| tokens.clone(), |before| tokens.since(before));
                self.counted = Some(tokens);
                Some(turn)
            }
            (tokens, _) => tokens,
        };
        let millis = self.started_at.take().map(|start| now.saturating_sub(start));
        let day = self.day(now);
        day.turns += 1;
        day.millis = day.millis.saturating_add(millis.and_then(|millis| millis.try_into().ok()).unwrap_or(0));
        if let Some(tokens) = tokens {
            day.counted_turns += 1;
            day.tokens.add(&tokens);
        }
    }

    /// The agent reported the cost of the session so far.
    pub(crate) fn on_cost(&mut self, cost: &Object, now: i64) {
        let amount = cost.get("amount").and_then(amount);
        let (Some(amount), Some(currency)) = (amount, cost.get_string("currency")) else { return };
        let since = match &self.cost {
            // A lower cost is that of an agent that has started again from zero.
            Some((before, total)) if *before == currency && *total <= amount => amount - total,
            Some(_) | None => amount,
        };
        let day = self.day(now);
        if day.costs.len() < MAX_CURRENCIES || day.costs.contains_key(&currency) {
            *day.costs.entry(currency.clone()).or_default() += since;
        }
        self.cost = Some((currency, amount));
    }

    /// The usage of the day of a time.
    fn day(&mut self, now: i64) -> &mut DayUsage {
        let today = now.div_euclid(MILLIS_PER_DAY);
        // The clock may have been set back: then the last day is counted.
        if self.days.last().is_none_or(|last| last.day < today) {
            self.days.push(DayUsage { day: today, ..DayUsage::default() });
            if self.days.len() > MAX_DAYS {
                let first = self.days.remove(0);
                self.days[0].add(&first);
            }
        }
        self.days.last_mut().expect("it was added")
    }
}

impl DayUsage {
    fn of(object: &Object) -> Option<Self> {
        Some(Self {
            day: object.get(key::DAY)?.as_str().parse().ok()?,
            turns: object.get_u64(key::TURNS).unwrap_or(0),
            counted_turns: object.get_u64(key::COUNTED_TURNS).unwrap_or(0),
            millis: object.get_u64(key::MILLIS).unwrap_or(0),
            tokens: object.get_object(key::TOKENS).and_then(|counts| Tokens::of(&counts)).unwrap_or_default(),
            costs: object.get_object(key::COSTS).map(|costs| amounts(&costs)).unwrap_or_default(),
        })
    }

    fn to_object(&self) -> Object {
        let mut object = Object::new().with(key::DAY, self.day);
        for (name, value) in
            [(key::TURNS, self.turns), (key::COUNTED_TURNS, self.counted_turns), (key::MILLIS, self.millis)]
        {
            if value > 0 {
                object.set(name, value);
            }
        }
        if !self.tokens.0.is_empty() {
            object.set(key::TOKENS, tokens_object(&self.tokens));
        }
        if !self.costs.is_empty() {
            object.set(key::COSTS, amounts_object(&self.costs));
        }
        object
    }

    /// Adds the usage of another day.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.counted_turns += other.counted_turns;
        self.millis = self.millis.saturating_add(other.millis);
        self.tokens.add(&other.tokens);
        for (currency, amount) in &other.costs {
            *self.costs.entry(currency.clone()).or_default() += amount;
        }
    }
}

fn tokens_object(tokens: &Tokens) -> Object {
    let mut object = Object::default();
    for (kind, count) in &tokens.0 {
        object.set(*kind, *count);
    }
    object
}

/// An amount of money.
fn amount(value: &Json) -> Option<f64> {
    value.as_str().parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0)
}

fn amounts(object: &Object) -> BTreeMap<String, f64> {
    let amount = |(currency, value): (&parlor_json::JsonStr, &Json)| {
        Some((currency.to_text().into_owned(), amount(value)?))
    };
    object.iter().filter_map(amount).collect()
}

fn amounts_object<'a>(amounts: impl IntoIterator<Item = (&'a String, &'a f64)>) -> Object {
    let mut object = Object::default();
    for (currency, amount) in amounts {
        if let Ok(amount) = Json::parse(amount.to_string()) {
            object.set(currency.clone(), amount);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use parlor_session::Activity;

    use super::*;

    const DAY: i64 = 20_000;
    const NOON: i64 = DAY * MILLIS_PER_DAY + MILLIS_PER_DAY / 2;

    fn object(text: &str) -> Object {
        Json::parse(text).unwrap().to_object().unwrap()
    }

    fn idle(fields: &str) -> State {
        State { activity: Activity::Idle, stop_reason: None, fields: object(fields), meta: None }
    }

    fn tokens(counts: &[(&'static str, u64)]) -> Tokens {
        Tokens(counts.iter().copied().collect())
    }

    #[test]
    fn the_tokens_of_turns_are_added_up_by_day_and_unreported_ones_stay_unknown() {
        let mut usage = SessionUsage::default();
        for (at, counts) in [
            (NOON, r#"{"usage":{"inputTokens":10,"outputTokens":2}}"#),
            (NOON + 1000, r#"{"usage":{"inputTokens":5,"outputTokens":1,"cachedReadTokens":4}}"#),
            (NOON + 2000, "{}"),
            (NOON + MILLIS_PER_DAY, r#"{"usage":{"inputTokens":1}}"#),
        ] {
            usage.on_turn_started(at - 500);
            usage.on_turn_ended(&idle(counts), false, at);
        }
        let [first, second] = &usage.days[..] else { panic!("{usage:?}") };
        assert_eq!((first.day, first.turns, first.counted_turns, first.millis), (DAY, 3, 2, 1500));
        let counts = [("inputTokens", 15), ("outputTokens", 3), ("cachedReadTokens", 4)];
        assert_eq!(first.tokens, tokens(&counts));
        assert_eq!((second.day, &second.tokens), (DAY + 1, &tokens(&[("inputTokens", 1)])));
        assert!(first.costs.is_empty());
    }

    #[test]
    fn counts_and_costs_of_the_whole_session_are_counted_once() {
        let mut usage = SessionUsage::default();
        for total in [100, 150, 30] {
            usage.on_turn_ended(&idle(&format!(r#"{{"usage":{{"inputTokens":{total}}}}}"#)), true, NOON);
        }
        // 100, then 50 more; then the agent starts again.
        assert_eq!(usage.days[0].tokens, tokens(&[("inputTokens", 180)]));
        for cost in [
            r#"{"amount":1.5,"currency":"USD"}"#,
            r#"{"amount":2,"currency":"USD"}"#,
            r#"{"amount":0.25,"currency":"USD"}"#,
            r#"{"amount":3,"currency":"EUR"}"#,
            r#"{"amount":-1,"currency":"USD"}"#,
            r#"{"amount":1e999,"currency":"USD"}"#,
            r#"{"currency":"USD"}"#,
        ] {
            usage.on_cost(&object(cost), NOON);
        }
        let costs: Vec<_> = usage.days[0].costs.iter().map(|(name, amount)| (&**name, *amount)).collect();
        assert_eq!(costs, [("EUR", 3.0), ("USD", 2.25)]);
    }

    #[test]
    fn a_usage_is_read_as_it_was_written() {
        let mut usage = SessionUsage::default();
        usage.on_turn_ended(&idle(r#"{"usage":{"inputTokens":10,"totalTokens":12}}"#), true, NOON);
        usage.on_cost(&object(r#"{"amount":0.1,"currency":"USD"}"#), NOON);
        let text = usage.to_object().text();
        assert_eq!(
            text,
            concat!(
                r#"{"days":[{"day":20000,"turns":1,"countedTurns":1,"tokens":{"inputTokens":10,"totalTokens":12},"costs":{"USD":0.1}}],"#,
                r#""counted":{"inputTokens":10,"totalTokens":12},"cost":{"USD":0.1}}"#
            )
        );
        assert_eq!(SessionUsage::of(&object(&text)), usage);
        assert!(SessionUsage::default().to_object().is_empty());
        for text in [r#"{"days":7}"#, r#"{"days":[1,{"turns":2}],"cost":{"USD":"x"},"counted":[]}"#] {
            assert_eq!(SessionUsage::of(&object(text)), SessionUsage::default(), "{text}");
        }
        // A fork has no turns; what the agent counted before it is not counted again.
        let fork = usage.of_fork();
        assert!(fork.days.is_empty());
        assert_eq!((fork.counted, fork.cost), (usage.counted, usage.cost));
    }

    #[test]
    fn the_number_of_days_is_limited_and_nothing_is_lost() {
        let mut usage = SessionUsage::default();
        let days = i64::try_from(MAX_DAYS).unwrap() + 10;
        for day in 0..days {
            usage.on_turn_ended(&idle("{}"), false, day * MILLIS_PER_DAY);
        }
        // The clock is set back.
        usage.on_turn_ended(&idle("{}"), false, 0);
        assert_eq!(usage.days.len(), MAX_DAYS);
        let turns: u64 = usage.days.iter().map(|day| day.turns).sum();
        assert_eq!(i64::try_from(turns).unwrap(), days + 1);
        assert_eq!(usage.days.last().unwrap().turns, 2);
    }
}
