/**
 * Stands for Cloudflare's mail server: hands the mail that is posted to it to the Worker, and
 * tells what would be said to the sender's server. Both run in one isolate, since setReject is
 * synchronous at Cloudflare and a call to another isolate is not.
 *
 * POST /?from=…&to=…[&size=…][&unforwardable] with the mail. size is what is announced, if it
 * is not the mail's own. The answer is {outcome: "accepted" | "rejected" | "temporary", reason, forwarded}.
 */
import worker from "worker.js";

export default {
	async fetch(request, env, ctx) {
		const query = new URL(request.url).searchParams;
		const mail = await request.arrayBuffer();
		const forwarded = [];
		let rejected;
		const message = {
			from: query.get("from"),
			to: query.get("to"),
			headers: new Headers(),
			raw: new Blob([mail]).stream(),
			rawSize: Number(query.get("size") ?? mail.byteLength),
			canBeForwarded: !query.has("unforwardable"),
			setReject: (reason) => {
				rejected = reason;
			},
			forward: async (to) => {
				if (to === "unverified@example.net") {
					throw new Error("destination address is not verified");
				}
				forwarded.push(to);
			},
		};
		try {
			await worker.email(message, env, ctx);
		} catch (error) {
			return Response.json({ outcome: "temporary", reason: String(error), forwarded });
		}
		if (rejected !== undefined) {
			return Response.json({ outcome: "rejected", reason: rejected, forwarded });
		}
		return Response.json({ outcome: "accepted", reason: "", forwarded });
	},
};
